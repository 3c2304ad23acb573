// The libp2p host, with what a user of the library would set for a throughput test and nothing else.

package main

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

// newHost makes a host. listen is host:port, or "" for a dialer. The resource manager is off: its
// defaults reset all but some dozens of a peer's streams, and a benchmark needs more.
func (o options) newHost(listen string) (host.Host, error) {
	opts := []libp2p.Option{
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.DisableRelay(),
	}
	switch o.security {
	case "noise":
		opts = append(opts, libp2p.Security(noise.ID, noise.New))
	case "plaintext":
		opts = append(opts, libp2p.NoSecurity)
	default:
		return nil, fmt.Errorf("%w: security %q", errUnsupported, o.security)
	}
	if o.seed != 0 {
		var seed [ed25519.SeedSize]byte
		binary.BigEndian.PutUint64(seed[:], uint64(o.seed))
		key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed[:]))
		if err != nil {
			return nil, fmt.Errorf("making the identity: %w", err)
		}
		opts = append(opts, libp2p.Identity(key))
	}
	if listen == "" {
		opts = append(opts, libp2p.NoListenAddrs)
	} else {
		addr, err := multiaddrOf(listen)
		if err != nil {
			return nil, err
		}
		opts = append(opts, libp2p.ListenAddrStrings(addr))
	}
	h, err := libp2p.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting the host: %w", err)
	}
	return h, nil
}

// multiaddrOf turns host:port into libp2p's form.
func multiaddrOf(hostport string) (string, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", err
	}
	family := "ip4"
	if ip := net.ParseIP(host); ip == nil {
		return "", fmt.Errorf("%q is no IP address", host)
	} else if ip.To4() == nil {
		family = "ip6"
	}
	return fmt.Sprintf("/%s/%s/tcp/%s", family, host, port), nil
}
