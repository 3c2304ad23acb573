// Package plaintext is libp2p's /plaintext/2.0.0: both sides say who they are, and nothing is
// protected. Nobody proves anything either; the exchange only finds peers that were dialed by
// mistake.
//
// Both sides send at once: uvarint(len), and an Exchange message {1 id bytes, 2 pubkey bytes}: the
// peer id as a multihash and the serialized PublicKey, which have to belong together. What follows
// are the raw bytes of the layer above, so that the exchange is read exactly.
//
// Source: libp2p specs, plaintext/README.md.
package plaintext

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/internal/handshake"
	"muxperf/transport/internal/pb"
)

// Protocol is the name under which the layer is negotiated.
const Protocol = "/plaintext/2.0.0"

// Field numbers of the Exchange message.
const (
	fieldID     = 1
	fieldPubkey = 2
)

// maxExchange bounds the peer's message: with Ed25519 it has 78 bytes, with RSA-8192 about 1,100.
const maxExchange = 8191

// Config says who we are and whom we expect.
type Config struct {
	Key    identity.PrivateKey
	Remote identity.ID // the peer that was dialed; "" for any
}

// Client runs the dialer's side on conn, within ctx. The error wraps transport.ErrHandshake or
// transport.ErrPeerID; after one, the caller closes conn.
func Client(ctx context.Context, conn net.Conn, cfg Config) (*transport.Secured, error) {
	return exchange(ctx, conn, cfg)
}

// Server runs the listener's side; it is the same exchange.
func Server(ctx context.Context, conn net.Conn, cfg Config) (*transport.Secured, error) {
	return exchange(ctx, conn, cfg)
}

func exchange(ctx context.Context, conn net.Conn, cfg Config) (*transport.Secured, error) {
	if cfg.Key.IsZero() {
		return nil, errors.New("plaintext: no identity key is set")
	}
	stop := handshake.Interruptible(ctx, conn)
	remote, err := swap(conn, cfg)
	if cause := stop(); cause != nil {
		return nil, fmt.Errorf("plaintext exchange: %w", cause)
	}
	if err != nil {
		return nil, fmt.Errorf("plaintext exchange: %w", err)
	}
	return &transport.Secured{Conn: conn, LocalPeer: cfg.Key.ID().String(), RemotePeer: remote.String()}, nil
}

// swap sends our message while it reads and judges the peer's. What the peer said tells more than that our message
// failed, as it does where the peer hangs up after its own.
func swap(conn net.Conn, cfg Config) (identity.ID, error) {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(marshal(cfg.Key.ID(), cfg.Key.PublicBytes()))
		sent <- err
	}()
	msg, err := read(conn)
	if err != nil {
		return "", err
	}
	id, err := parse(msg)
	if err == nil {
		err = handshake.CheckPeer(cfg.Remote, id)
	}
	if err != nil {
		return "", err
	}
	if err := <-sent; err != nil {
		return "", fmt.Errorf("sending our identity: %w", err)
	}
	return id, nil
}

// marshal returns an Exchange message with its length in front.
func marshal(id identity.ID, pubkey []byte) []byte {
	msg := pb.AppendBytes(nil, fieldID, string(id))
	msg = pb.AppendBytes(msg, fieldPubkey, pubkey)
	return append(binary.AppendUvarint(nil, uint64(len(msg))), msg...)
}

// read reads the peer's message, and not a byte more.
func read(r io.Reader) ([]byte, error) {
	var b [2]byte
	for n := range b {
		if _, err := io.ReadFull(r, b[n:n+1]); err != nil {
			return nil, fmt.Errorf("%w: reading the peer's identity: %w", transport.ErrHandshake, err)
		}
		if b[n] >= 0x80 {
			continue
		}
		length, _ := binary.Uvarint(b[:n+1])
		if length > maxExchange {
			break
		}
		msg := make([]byte, length)
		if _, err := io.ReadFull(r, msg); err != nil {
			return nil, fmt.Errorf("%w: reading the peer's identity: %w", transport.ErrHandshake, err)
		}
		return msg, nil
	}
	return nil, fmt.Errorf("%w: the peer announces an identity of more than %d bytes (its answer starts with % x, %q)",
		transport.ErrHandshake, maxExchange, b, b)
}

// parse returns the peer id that an Exchange message claims, if its key is that id's.
func parse(msg []byte) (identity.ID, error) {
	var id identity.ID
	var pubkey []byte
	err := pb.Each(msg, func(f pb.Field) error {
		switch {
		case f.Number == fieldID && f.IsBytes:
			id = identity.ID(f.Bytes)
		case f.Number == fieldPubkey && f.IsBytes:
			pubkey = f.Bytes
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%w: the peer's identity: %w", transport.ErrHandshake, err)
	}
	if id == "" || pubkey == nil {
		return "", fmt.Errorf("%w: the peer's message lacks its id or its key", transport.ErrHandshake)
	}
	key, err := identity.ParsePublicKey(pubkey)
	if err != nil {
		return "", fmt.Errorf("%w: the peer's identity: %w", transport.ErrHandshake, err)
	}
	if key.ID() != id {
		return "", fmt.Errorf("%w: the peer's id does not belong to its key, which is that of %s", transport.ErrPeerID, key.ID())
	}
	return id, nil
}
