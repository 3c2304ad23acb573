// The dialing side: carrier, security, muxer, each timed and each with its own deadline.

package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/multistream"
	"muxperf/transport/raw"
	"muxperf/transport/tcp"
	"muxperf/transport/wisp"
)

// ErrUnreachable: no connection to the peer's address could be made.
var ErrUnreachable = errors.New("cannot connect")

// Dial connects to addr and sets up every layer. The error wraps ErrUnreachable, or one of the
// errors of package transport, with what was being done.
func Dial(ctx context.Context, addr identity.Address, cfg Config) (transport.Session, error) {
	cfg = cfg.yamuxFor(cfg.Security)
	if err := Check(cfg.Security, cfg.Mux); err != nil {
		return nil, err
	}
	d := dialer{addr: addr, cfg: cfg}
	s, err := d.session(ctx)
	if errors.Is(err, wisp.ErrTryV1) && cfg.WispClient.Version == 0 {
		d.cfg.WispClient.Version = 1
		return d.session(ctx)
	}
	return s, err
}

// A dialer makes the connections of one session.
type dialer struct {
	addr identity.Address
	cfg  Config
}

// session dials and builds the layers.
func (d *dialer) session(ctx context.Context) (transport.Session, error) {
	info := transport.Info{Stack: transport.Stack{
		Carrier: d.carrierName(), Security: d.cfg.Security, Mux: d.cfg.Mux}}
	conn, err := d.secured(ctx, &info)
	if err != nil {
		return nil, err
	}
	info.Local, info.Remote = conn.LocalAddr().String(), conn.RemoteAddr().String()
	info.LocalPeer, info.RemotePeer = conn.LocalPeer, conn.RemotePeer
	start := time.Now()
	mux, err := d.muxer(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("setting up %s with %s: %w", d.cfg.Mux, d.addr, unanswered(err))
	}
	info.Setup.Mux = time.Since(start)
	return newSession(mux, conn, info, d.cfg, d.cfg.serve, nil), nil
}

func (d *dialer) carrierName() string {
	if d.addr.Network == "unix" {
		return "unix"
	}
	return "tcp"
}

// connect makes the carrier's connection.
func (d *dialer) connect(ctx context.Context) (net.Conn, error) {
	if t := d.cfg.ConnectTimeout; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t, fmt.Errorf("%w: no answer within %s", context.DeadlineExceeded, t))
		defer cancel()
	}
	conn, err := tcp.Dial(ctx, d.addr.Network, d.addr.HostPort(), d.cfg.TCP)
	if err != nil {
		return nil, fmt.Errorf("%w to %s: %w", ErrUnreachable, d.addr, because(ctx, err))
	}
	return conn, nil
}

// secured makes a connection with the security layer on it, and notes how long each took.
func (d *dialer) secured(ctx context.Context, info *transport.Info) (*transport.Secured, error) {
	start := time.Now()
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	info.Setup.Connect = time.Since(start)
	if bare(d.cfg.Security, d.cfg.Mux) {
		return &transport.Secured{Conn: conn}, nil
	}
	start = time.Now()
	sec, err := d.secure(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("setting up %s with %s: %w", d.cfg.Security, d.addr, unanswered(err))
	}
	info.Setup.Security = time.Since(start)
	return sec, nil
}

// secure negotiates the security protocol and runs its handshake.
func (d *dialer) secure(ctx context.Context, conn net.Conn) (*transport.Secured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.handshakeTimeout(), errSilent(d.cfg.handshakeTimeout()))
	defer cancel()
	layer := securities()[d.cfg.Security]
	stop := interruptible(ctx, conn)
	_, err := multistream.Select(conn, layer.protocol)
	stop()
	if err != nil {
		return nil, because(ctx, err)
	}
	var offer []string
	if m, ok := muxers()[d.cfg.Mux]; ok {
		offer = []string{m.protocol}
	}
	sec, err := layer.client(ctx, conn, d.cfg, d.addr.Peer, offer)
	if err != nil {
		return nil, because(ctx, err)
	}
	return sec, conn.SetDeadline(time.Time{})
}

// muxer negotiates the muxer, unless Noise has agreed on it or the stack has no layer in which to
// name one, and starts it.
func (d *dialer) muxer(ctx context.Context, conn *transport.Secured) (transport.Muxer, error) {
	if d.cfg.Mux == None {
		return raw.Client(conn, func(ctx context.Context) (net.Conn, error) {
			var ignored transport.Info
			return d.secured(ctx, &ignored)
		}), nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.handshakeTimeout(), errSilent(d.cfg.handshakeTimeout()))
	defer cancel()
	layer := muxers()[d.cfg.Mux]
	if conn.Muxer != "" && conn.Muxer != layer.protocol {
		return nil, fmt.Errorf("%w: the peer chose %s", transport.ErrHandshake, conn.Muxer)
	}
	if conn.Muxer == "" && !bare(d.cfg.Security, d.cfg.Mux) {
		stop := interruptible(ctx, conn)
		_, err := multistream.Select(conn, layer.protocol)
		stop()
		if err != nil {
			return nil, because(ctx, err)
		}
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return nil, err
		}
	}
	m, err := layer.client(ctx, muxConn(conn), d.cfg)
	if err != nil {
		return nil, because(ctx, err)
	}
	return m, nil
}

// muxConn is the connection that a muxer gets: the plain socket itself where there is no layer, so
// that the muxer's vectored writes reach the kernel as such.
func muxConn(s *transport.Secured) net.Conn {
	return s.Conn
}

// errSilent is why a handshake that never got an answer ends.
func errSilent(after time.Duration) error {
	return fmt.Errorf("%w: no answer within %s: is a muxperf or libp2p peer listening there?", context.DeadlineExceeded, after)
}

func (c Config) serve(protocol string) bool { return c.Serve != nil && c.Serve(protocol) }
