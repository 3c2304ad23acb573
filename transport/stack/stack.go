// Package stack puts the layers together: it turns an address into a Session on the dialing side,
// and an accepted connection into one on the listening side.
//
// Both sides go through the same three steps, carrier, security and muxer. What follows a step is
// named by multistream-select, with three exceptions: the muxer may be agreed inside the Noise
// handshake; a connection that begins with "GET " is a WebSocket and carries Wisp; and wherever a
// muxer could be named, a stream protocol may be named instead. Then the connection is that one
// stream: this is what --mux none means on the wire.
//
//	bytes                                          the connection is
//	/multistream /noise ⟨handshake⟩ …              secured, then as below
//	/multistream /plaintext/2.0.0 ⟨exchange⟩ …     identified only, then as below
//	  /multistream /yamux/1.0.0                    a Yamux session
//	  /multistream /wisp/2.0.0 GET …               a Wisp session inside the secured channel
//	  /multistream /perf/1.0.0                     one stream (--mux none)
//	GET …                                          a Wisp session in the clear
//	/multistream /perf/1.0.0                       one stream in the clear (plaintext, --mux none)
package stack

import (
	"context"
	"fmt"
	"net"
	"time"

	"muxperf/transport"
	"muxperf/transport/aead"
	"muxperf/transport/identity"
	"muxperf/transport/noise"
	"muxperf/transport/plaintext"
	"muxperf/transport/raw"
	"muxperf/transport/tcp"
	"muxperf/transport/wisp"
	"muxperf/transport/yamux"
)

// The names of layers, as flags, JSON and tables have them.
const (
	Noise     = "noise"
	Plaintext = "plaintext"
	Yamux     = "yamux"
	Wisp      = "wisp"
	None      = "none"
)

// WispProtocol names the WebSocket upgrade that follows inside a secured channel. It is ours:
// no other implementation runs Wisp there.
const WispProtocol = "/wisp/2.0.0"

// Config says how sessions are made; one Config serves any number of them.
type Config struct {
	Security         string // Noise or Plaintext; the dialer's choice
	Mux              string // Yamux, Wisp or None; the dialer's choice
	Key              identity.PrivateKey
	TCP              tcp.Options
	NoiseWorkers     int           // goroutines that seal or open records, each way; 0 chooses by the cores
	AEAD             aead.Provider // what seals them
	Yamux            yamux.Config
	WispClient       wisp.ClientConfig
	WispServer       wisp.ServerConfig
	ConnectTimeout   time.Duration // for the carrier; 0 leaves it to the system
	HandshakeTimeout time.Duration // for each layer; 0 means 10 s
	// Serve says which stream protocols this side answers; nil means none.
	Serve func(protocol string) bool
	// WispPorts names the protocols of the built-in Wisp destinations that need no negotiation.
	WispPorts map[int]string
	// Only, if set, is the one security layer that a listener accepts.
	Only string
	// AllowPeer decides on a verified peer id; nil allows all.
	AllowPeer func(id string) error
}

// A securityLayer makes a Secured connection of a plain one.
type securityLayer struct {
	protocol       string
	client, server func(context.Context, net.Conn, Config, identity.ID, []string) (*transport.Secured, error)
}

// A muxerLayer makes a Muxer of a connection.
type muxerLayer struct {
	protocol       string // as multistream-select names it
	client, server func(context.Context, net.Conn, Config) (transport.Muxer, error)
}

// securities is the table of security layers, by name.
func securities() map[string]securityLayer {
	return map[string]securityLayer{
		Noise: {"/noise",
			func(ctx context.Context, c net.Conn, cfg Config, remote identity.ID, muxers []string) (*transport.Secured, error) {
				return noise.Client(ctx, c, noise.Config{Key: cfg.Key, Remote: remote, Muxers: muxers, Workers: cfg.NoiseWorkers, AEAD: cfg.AEAD})
			},
			func(ctx context.Context, c net.Conn, cfg Config, remote identity.ID, muxers []string) (*transport.Secured, error) {
				return noise.Server(ctx, c, noise.Config{Key: cfg.Key, Remote: remote, Muxers: muxers, Workers: cfg.NoiseWorkers, AEAD: cfg.AEAD})
			}},
		Plaintext: {"/plaintext/2.0.0",
			func(ctx context.Context, c net.Conn, cfg Config, remote identity.ID, _ []string) (*transport.Secured, error) {
				return plaintext.Client(ctx, c, plaintext.Config{Key: cfg.Key, Remote: remote})
			},
			func(ctx context.Context, c net.Conn, cfg Config, remote identity.ID, _ []string) (*transport.Secured, error) {
				return plaintext.Server(ctx, c, plaintext.Config{Key: cfg.Key, Remote: remote})
			}},
	}
}

// muxers is the table of muxers, by name. None has no entry: it is the absence of one.
func muxers() map[string]muxerLayer {
	return map[string]muxerLayer{
		Yamux: {yamux.Protocol,
			func(_ context.Context, c net.Conn, cfg Config) (transport.Muxer, error) {
				return yamux.Client(c, cfg.Yamux)
			},
			func(_ context.Context, c net.Conn, cfg Config) (transport.Muxer, error) {
				return yamux.Server(c, cfg.Yamux)
			}},
		Wisp: {WispProtocol,
			func(ctx context.Context, c net.Conn, cfg Config) (transport.Muxer, error) {
				return wisp.Client(ctx, c, cfg.WispClient)
			},
			func(ctx context.Context, c net.Conn, cfg Config) (transport.Muxer, error) {
				return wisp.Server(ctx, c, cfg.WispServer)
			}},
	}
}

// muxerNamed finds a muxer by its protocol.
func muxerNamed(protocol string) (name string, layer muxerLayer, ok bool) {
	for name, l := range muxers() {
		if l.protocol == protocol {
			return name, l, true
		}
	}
	return "", muxerLayer{}, false
}

// Check reports an impossible stack, in words for a user.
func Check(security, mux string) error {
	if _, ok := securities()[security]; !ok {
		return fmt.Errorf("there is no security layer %q: choose noise or plaintext", security)
	}
	if _, ok := muxers()[mux]; !ok && mux != None {
		return fmt.Errorf("there is no muxer %q: choose yamux, wisp or none", mux)
	}
	return nil
}

// bare reports whether a stack has no security layer on the wire: plaintext is an exchange of
// identities under Yamux, as libp2p has it, and nothing at all under Wisp and without a muxer.
func bare(security, mux string) bool { return security == Plaintext && mux != Yamux }

func (c Config) handshakeTimeout() time.Duration {
	if c.HandshakeTimeout > 0 {
		return c.HandshakeTimeout
	}
	return 10 * time.Second
}

// yamuxFor fills in the frame size that fits the security layer.
func (c Config) yamuxFor(security string) Config {
	frame := yamux.PlaintextFrame
	if security == Noise {
		frame = yamux.NoiseFrame
	}
	c.Yamux = c.Yamux.WithDefaults(frame)
	return c
}

// newRaw is the muxer that is none, for an accepted connection.
func newRaw(conn net.Conn) transport.Muxer { return raw.Server(conn) }
