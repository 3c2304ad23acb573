// The one Session: a Muxer with a protocol negotiated on each stream.
//
// Streams of the peer are accepted in a loop of its own and negotiated each in a goroutine, so that
// one that never speaks delays nobody, and one with an unknown protocol is answered `na` at once:
// go-libp2p opens identify on every connection and waits five seconds for an answer.

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"muxperf/transport"
	"muxperf/transport/multistream"
	"muxperf/transport/tcp"
)

const (
	negotiateTimeout = 10 * time.Second // for each stream, as go-libp2p and rust-libp2p have it
	maxNegotiating   = 256              // streams in negotiation or waiting for Accept; more are reset
	acceptedQueue    = 16
)

type session struct {
	mux      transport.Muxer
	conn     net.Conn
	info     transport.Info
	serve    func(string) bool
	patience time.Duration // for the peer's answer when we open a stream
	// fixed names the protocol of a stream that says it by other means than negotiation; nil if
	// none does.
	fixed func(transport.MuxStream) (string, bool)

	accepted chan transport.Stream
	pending  chan struct{} // a semaphore over streams between the muxer and Accept
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	endErr   error // why the accept loop ended; valid once ended is closed
	ended    chan struct{}
}

func newSession(mux transport.Muxer, conn net.Conn, info transport.Info, cfg Config, serve func(string) bool,
	fixed func(transport.MuxStream) (string, bool)) *session {
	s := &session{
		mux: mux, conn: conn, info: info, serve: serve, fixed: fixed, patience: cfg.handshakeTimeout(),
		accepted: make(chan transport.Stream, acceptedQueue),
		pending:  make(chan struct{}, maxNegotiating),
		ended:    make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Add(1)
	go s.acceptLoop()
	return s
}

// acceptLoop takes streams from the muxer until it ends.
func (s *session) acceptLoop() {
	defer s.wg.Done()
	defer close(s.ended)
	for {
		ms, err := s.mux.AcceptStream(s.ctx)
		if err != nil {
			s.endErr = err
			return
		}
		select {
		case s.pending <- struct{}{}:
			s.wg.Add(1)
			go s.negotiate(ms)
		default:
			_ = ms.Reset()
		}
	}
}

// negotiate agrees on a protocol and hands the stream to Accept.
func (s *session) negotiate(ms transport.MuxStream) {
	defer s.wg.Done()
	defer func() { <-s.pending }()
	st, err := s.agree(ms)
	if err != nil {
		_ = ms.Reset()
		return
	}
	select {
	case s.accepted <- st:
	case <-s.ctx.Done():
		_ = ms.Reset()
	}
}

func (s *session) agree(ms transport.MuxStream) (transport.Stream, error) {
	if s.fixed != nil {
		if protocol, ok := s.fixed(ms); ok {
			return &stream{ms, protocol}, nil
		}
	}
	if err := ms.SetDeadline(time.Now().Add(negotiateTimeout)); err != nil {
		return nil, err
	}
	protocol, err := multistream.Negotiate(ms, s.serve)
	if err != nil {
		return nil, err
	}
	return &stream{ms, protocol}, ms.SetDeadline(time.Time{})
}

// Open opens a stream and proposes protocol.
func (s *session) Open(ctx context.Context, protocol string) (transport.Stream, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errSilent(s.patience))
	defer cancel()
	ms, err := s.mux.OpenStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	stop := interruptible(ctx, ms)
	_, err = multistream.Select(ms, protocol)
	if cancelled := stop(); cancelled && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = ms.Reset()
		err = because(ctx, err)
		if s.info.Stack.Mux == None {
			err = unanswered(err) // this stream is the connection
		}
		return nil, fmt.Errorf("agreeing on %s: %w", protocol, err)
	}
	return &stream{ms, protocol}, nil
}

// Accept returns the next stream with a protocol of ours.
func (s *session) Accept(ctx context.Context) (transport.Stream, error) {
	select {
	case st := <-s.accepted:
		return st, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
	}
	select { // streams that were agreed on before the end are still served
	case st := <-s.accepted:
		return st, nil
	default:
		return nil, s.endErr
	}
}

// Close ends the muxer, the connection and everything that waits on them.
func (s *session) Close() error {
	s.cancel()
	err := s.mux.Close()
	if cerr := s.conn.Close(); err == nil && !errors.Is(cerr, net.ErrClosed) {
		err = cerr
	}
	s.wg.Wait()
	for {
		select {
		case st := <-s.accepted:
			_ = st.Reset()
		default:
			return err
		}
	}
}

func (s *session) Info() transport.Info { return s.info }

// sockets are the connection's, or each stream's where there is no muxer.
func (s *session) sockets() []net.Conn {
	if b, ok := s.mux.(interface{ Conns() []net.Conn }); ok {
		return b.Conns()
	}
	return []net.Conn{s.conn}
}

// TuneSockets sets options on every socket.
func (s *session) TuneSockets(o transport.SocketOptions) error {
	for _, c := range s.sockets() {
		if err := tcp.Tune(transport.Underlying(c), tcp.Options{SocketBuf: o.Buffer, Congestion: o.Congestion, Delay: o.Nagle}); err != nil {
			return err
		}
	}
	return nil
}

// TCPInfo asks the kernel about each socket.
func (s *session) TCPInfo() []transport.TCPInfo {
	var out []transport.TCPInfo
	for _, c := range s.sockets() {
		if info, ok := tcp.Info(transport.Underlying(c)); ok {
			out = append(out, info)
		}
	}
	return out
}

// DialTarget reaches host:port through the peer; only a muxer that proxies can.
func (s *session) DialTarget(ctx context.Context, network, host string, port int) (transport.Stream, error) {
	d, ok := s.mux.(interface {
		Dial(ctx context.Context, network, host string, port int) (transport.MuxStream, error)
	})
	if !ok {
		return nil, fmt.Errorf("--mux %s cannot reach other hosts through the peer; --mux wisp can", s.info.Stack.Mux)
	}
	ms, err := d.Dial(ctx, network, host, port)
	if err != nil {
		return nil, err
	}
	return &stream{ms, network}, nil
}

// Streams is how many streams the muxer has; 0 if it does not know.
func (s *session) Streams() int {
	if c, ok := s.mux.(transport.StreamCounter); ok {
		return c.Streams()
	}
	return 0
}

// A stream is a MuxStream with its protocol.
type stream struct {
	transport.MuxStream
	protocol string
}

func (s *stream) Protocol() string { return s.protocol }

// Settle waits for the peer to pass on what it has got, where the muxer can only guess that.
func (s *stream) Settle(quiet, limit time.Duration) {
	if m, ok := s.MuxStream.(interface {
		Settle(quiet, limit time.Duration)
	}); ok {
		m.Settle(quiet, limit)
	}
}

// deadliner is anything whose blocking calls a deadline can end.
type deadliner interface{ SetDeadline(time.Time) error }

// interruptible ends the blocking calls on d when ctx is done, by its deadline or by cancellation.
// The function it returns undoes that and reports whether ctx was done.
func interruptible(ctx context.Context, d deadliner) func() bool {
	undo := context.AfterFunc(ctx, func() { _ = d.SetDeadline(time.Unix(1, 0)) })
	return func() bool { return !undo() }
}

// because prefers the reason why ctx ended over the timeout that it caused.
func because(ctx context.Context, err error) error {
	var ne net.Error
	if cause := context.Cause(ctx); cause != nil && errors.As(err, &ne) && ne.Timeout() {
		return cause
	}
	if err == io.ErrUnexpectedEOF {
		return fmt.Errorf("the peer closed the connection: %w", err)
	}
	return err
}

// unanswered counts a connection that ends while it is set up as a failed handshake, whichever layer saw it: nothing
// tells whether the peer would have spoken that layer.
func unanswered(err error) error {
	if errors.Is(err, transport.ErrHandshake) {
		return err
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return fmt.Errorf("%w: %w", transport.ErrHandshake, err)
		}
	}
	return err
}
