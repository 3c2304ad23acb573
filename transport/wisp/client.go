// The client: upgrade, handshake of either version, streams to any destination.

package wisp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"muxperf/transport"
	"muxperf/transport/wisp/ws"
)

// ClientConfig is how a client connects; the zero value is fit for every server known.
type ClientConfig struct {
	Host    string  // of the HTTP request; the address if empty
	Path    string  // of it; "/" if empty. It ends with a slash
	Version int     // 1 or 2; 0 offers 2 and goes back to 1
	Mask    ws.Mask // of frames; random if empty
	Payload int     // most bytes of one DATA; 0 means 65,523
	// User and Password are the credentials, for a server that asks for them.
	User, Password string
	// CreditFirst is the order of epoxy: CONTINUE, then INFO.
	CreditFirst bool
}

// ErrTryV1: the server did not take a client of version 2. A new connection may be tried as version 1.
var ErrTryV1 = errors.New("the server refused a Wisp client of version 2")

const subprotocol = "wisp-v2"

// Client upgrades conn and runs the handshake, within ctx.
func Client(ctx context.Context, conn net.Conn, cfg ClientConfig) (transport.Muxer, error) {
	undo := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c, err := client(conn, cfg)
	if !undo() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func client(conn net.Conn, cfg ClientConfig) (*Conn, error) {
	if cfg.Host == "" {
		cfg.Host = conn.RemoteAddr().String()
	}
	if cfg.Path == "" {
		cfg.Path = "/"
	}
	offer := subprotocol
	if cfg.Version == 1 {
		offer = ""
	}
	r := bufio.NewReaderSize(conn, readBuffer)
	chosen, err := ws.Dial(conn, r, cfg.Host, cfg.Path, offer)
	if err != nil {
		if offer != "" && cfg.Version == 0 && errors.Is(err, ws.ErrStatus) {
			return nil, fmt.Errorf("%w: %w", ErrTryV1, err)
		}
		return nil, fmt.Errorf("%w: %w", transport.ErrHandshake, err)
	}
	c := newConn(conn, r, true, cfg.Mask, 16<<20)
	c.payload = defaultPayload
	if cfg.Payload > 0 {
		c.payload = cfg.Payload
	}
	// A server that chooses no subprotocol knows version 1 only, whatever was offered.
	c.version = 1
	if chosen != "" {
		c.version = 2
	}
	if err := c.clientHandshake(cfg); err != nil {
		c.w.close()
		return nil, fmt.Errorf("%w: %w", transport.ErrHandshake, err)
	}
	c.start()
	return c, nil
}

// clientHandshake waits for the first credit; in version 2 the INFOs come before it. A server whose first
// word is a credit speaks version 1, unless it is known to have the other order.
func (c *Conn) clientHandshake(cfg ClientConfig) error {
	for informed := false; ; {
		p, err := c.r.Next(getBuffer(), growBuffer)
		if err != nil {
			return fmt.Errorf("waiting for the server's first packet: %w", err)
		}
		kind, id, body, err := parseHeader(p)
		if err != nil || id != 0 {
			return fmt.Errorf("%w: the server began with something else than a packet for stream 0", errPacket)
		}
		switch kind {
		case typeContinue:
			if len(body) < 4 {
				return fmt.Errorf("%w: a CONTINUE of %d bytes", errPacket, len(body))
			}
			c.credit = int(min(binary.LittleEndian.Uint32(body), 1<<20))
			if c.credit == 0 {
				return fmt.Errorf("%w: the server grants no packet at all", errPacket)
			}
			if !informed && !cfg.CreditFirst {
				c.version = 1
			}
			if informed || !cfg.CreditFirst || c.version == 1 {
				putBuffer(p)
				return nil
			}
		case typeInfo:
			if err := c.answerInfo(body, cfg); err != nil {
				return err
			}
			if informed = true; cfg.CreditFirst && c.credit > 0 {
				putBuffer(p)
				return nil
			}
		case typeClose:
			return fmt.Errorf("%w: %s", transport.ErrRefused, Reason(firstByte(body)))
		default:
			return fmt.Errorf("%w: packet type %#02x in the handshake", errPacket, kind)
		}
		putBuffer(p)
	}
}

func firstByte(b []byte) byte {
	if len(b) == 0 {
		return byte(ReasonUnknown)
	}
	return b[0]
}

// answerInfo takes the server's extensions and sends those that both have.
func (c *Conn) answerInfo(body []byte, cfg ClientConfig) error {
	theirs, err := parseInfo(body)
	if err != nil {
		return err
	}
	ours := info{major: 2, extensions: map[byte][]byte{}}
	if _, ok := theirs.extensions[extUDP]; ok {
		ours.extensions[extUDP] = nil
	}
	if _, ok := theirs.extensions[extConfirm]; ok {
		ours.extensions[extConfirm] = nil
		c.confirm = true
	}
	required := func(ext byte) bool { m := theirs.extensions[ext]; return len(m) > 0 && m[0] != 0 }
	if _, ok := theirs.extensions[extPassword]; ok {
		switch {
		case cfg.Password != "":
			ours.extensions[extPassword] = appendPassword(cfg.User, cfg.Password)
		case required(extPassword):
			_ = c.w.packet(typeClose, 0, []byte{byte(ReasonIncompatible)}, nil)
			return fmt.Errorf("%w: the Wisp server asks for a password", transport.ErrRefused)
		}
	}
	if required(extCert) {
		_ = c.w.packet(typeClose, 0, []byte{byte(ReasonIncompatible)}, nil)
		return fmt.Errorf("%w: the Wisp server asks for a signature, which this client does not make", transport.ErrRefused)
	}
	return c.w.packet(typeInfo, 0, ours.append(nil), nil)
}

// OpenStream opens a stream to the server's own protocols.
func (c *Conn) OpenStream(ctx context.Context) (transport.MuxStream, error) {
	return c.Dial(ctx, "tcp", InternalHost, PortMuxperf)
}

// Dial opens a stream to host:port on network "tcp" or "udp". Data may follow at once. With the extension for
// it the answer is waited for; without it, a refusal is seen by the first Read.
func (c *Conn) Dial(ctx context.Context, network, host string, port int) (transport.MuxStream, error) {
	dest := connect{kind: streamTCP, port: port, host: host}
	if network == "udp" {
		dest.kind = streamUDP
	}
	if !c.client || port < 1 || port > 65535 {
		return nil, fmt.Errorf("opening a Wisp stream to %s:%d: not possible here", host, port)
	}
	s := newStream(c, c.dialed.Add(1), dest)
	if !c.add(s) {
		return nil, net.ErrClosed
	}
	if err := c.w.packet(typeConnect, s.id, dest.append(nil), ctx.Done()); err != nil {
		c.forget(s.id)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("opening a Wisp stream: %w", err)
	}
	if !c.confirm {
		return s, nil
	}
	return s, s.confirmed(ctx)
}

// confirmed waits for the server's word that the stream is open.
func (s *Stream) confirmed(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.opened {
		if s.ended != nil {
			return s.ended
		}
		if err := s.wait(ctx.Done()); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
