// The listening side: one port speaks every stack, told apart by the first bytes.

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"muxperf/transport"
	"muxperf/transport/multistream"
)

// ErrNotSpoken: the connection ended, or said something that is none of ours, before any protocol
// began. Health checks and port scans do this; a server should count them and say nothing.
var ErrNotSpoken = errors.New("no known protocol was spoken")

// Upgrade makes a Session of an accepted connection. It closes conn on failure.
func Upgrade(ctx context.Context, conn net.Conn, cfg Config) (transport.Session, error) {
	s, err := upgrade(ctx, conn, cfg)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

func upgrade(ctx context.Context, conn net.Conn, cfg Config) (transport.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.handshakeTimeout())
	defer cancel()
	info := transport.Info{
		Stack: transport.Stack{Carrier: conn.LocalAddr().Network(), Security: Plaintext},
		Local: conn.LocalAddr().String(), Remote: conn.RemoteAddr().String(),
	}
	first, err := sniff(ctx, conn)
	if err != nil {
		return nil, err
	}
	peeked := &transport.Peeked{Conn: conn, Prefix: []byte{first}}
	switch first {
	case 'G':
		if cfg.Only == Noise || cfg.AllowPeer != nil {
			return nil, fmt.Errorf("%w: Wisp in the clear, where only %s clients are served", transport.ErrRefused, Noise)
		}
		return finish(ctx, &transport.Secured{Conn: peeked}, Wisp, info, cfg)
	case multistreamFirst:
		return negotiated(ctx, peeked, info, cfg)
	}
	return nil, fmt.Errorf("%w: the first byte was %#02x", ErrNotSpoken, first)
}

// multistreamFirst is the length byte of "/multistream/1.0.0\n".
const multistreamFirst = 0x13

// sniff reads one byte.
func sniff(ctx context.Context, conn net.Conn) (byte, error) {
	var b [1]byte
	stop := interruptible(ctx, conn)
	_, err := io.ReadFull(conn, b[:])
	stop()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotSpoken, err)
	}
	return b[0], nil
}

// negotiated follows multistream-select: to a security layer, or to a stream protocol on a bare
// connection.
func negotiated(ctx context.Context, conn *transport.Peeked, info transport.Info, cfg Config) (transport.Session, error) {
	table := securities()
	named := map[string]string{}
	for name, l := range table {
		if cfg.Only == "" || cfg.Only == name {
			named[l.protocol] = name
		}
	}
	bareAllowed := cfg.Only != Noise && cfg.AllowPeer == nil
	protocol, err := negotiate(ctx, conn, func(p string) bool { return named[p] != "" || bareAllowed && cfg.serve(p) })
	if err != nil {
		return nil, fmt.Errorf("negotiating with %s: %w", info.Remote, err)
	}
	name, secure := named[protocol]
	if !secure {
		return single(&transport.Secured{Conn: conn}, protocol, info, cfg), nil
	}
	info.Stack.Security = name
	offer := []string{muxers()[Yamux].protocol, muxers()[Wisp].protocol}
	sec, err := table[name].server(ctx, unpeeled(conn), cfg, "", offer)
	if err != nil {
		return nil, fmt.Errorf("setting up %s with %s: %w", name, info.Remote, err)
	}
	info.LocalPeer, info.RemotePeer = sec.LocalPeer, sec.RemotePeer
	if cfg.AllowPeer != nil {
		if name == Plaintext {
			return nil, fmt.Errorf("%w: plaintext proves no identity, and only known peers are served", transport.ErrRefused)
		}
		if err := cfg.AllowPeer(sec.RemotePeer); err != nil {
			return nil, err
		}
	}
	return muxed(ctx, sec, info, cfg)
}

// muxed finds the muxer of a secured connection, or the stream protocol that stands in its place.
func muxed(ctx context.Context, sec *transport.Secured, info transport.Info, cfg Config) (transport.Session, error) {
	protocol := sec.Muxer
	if protocol == "" {
		var err error
		protocol, err = negotiate(ctx, sec, func(p string) bool {
			_, _, ok := muxerNamed(p)
			return ok || cfg.serve(p)
		})
		if err != nil {
			return nil, fmt.Errorf("negotiating a muxer with %s: %w", info.Remote, err)
		}
	}
	if name, _, ok := muxerNamed(protocol); ok {
		return finish(ctx, sec, name, info, cfg)
	}
	return single(sec, protocol, info, cfg), nil
}

// negotiate runs the listener's multistream-select within ctx.
func negotiate(ctx context.Context, conn net.Conn, accept func(string) bool) (string, error) {
	stop := interruptible(ctx, conn)
	protocol, err := multistream.Negotiate(conn, accept)
	stop()
	if err != nil {
		return "", because(ctx, err)
	}
	return protocol, conn.SetDeadline(time.Time{})
}

// finish starts the muxer and makes the session.
func finish(ctx context.Context, sec *transport.Secured, name string, info transport.Info, cfg Config) (transport.Session, error) {
	info.Stack.Mux = name
	mux, err := muxers()[name].server(ctx, unpeeled(sec.Conn), cfg.yamuxFor(info.Stack.Security))
	if err != nil {
		return nil, fmt.Errorf("setting up %s with %s: %w", name, info.Remote, err)
	}
	return newSession(mux, sec.Conn, info, cfg, cfg.serve, cfg.destination), nil
}

// single makes the session of a connection that is one stream.
func single(sec *transport.Secured, protocol string, info transport.Info, cfg Config) transport.Session {
	info.Stack.Mux = None
	return newSession(newRaw(unpeeled(sec.Conn)), sec.Conn, info, cfg, nil,
		func(transport.MuxStream) (string, bool) { return protocol, true })
}

// unpeeled drops a Peeked whose prefix was read, so that the layer above writes to the socket itself.
func unpeeled(conn net.Conn) net.Conn {
	if p, ok := conn.(*transport.Peeked); ok && len(p.Prefix) == 0 {
		return p.Conn
	}
	return conn
}

// destination names the protocol of a built-in Wisp destination.
func (c Config) destination(ms transport.MuxStream) (string, bool) {
	d, ok := ms.(interface {
		Destination() (network, host string, port int)
	})
	if !ok {
		return "", false
	}
	_, _, port := d.Destination()
	protocol, ok := c.WispPorts[port]
	return protocol, ok
}
