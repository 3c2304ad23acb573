// Package yamux is the Yamux muxer of libp2p (/yamux/1.0.0), on go-yamux/v4, with frames and windows
// chosen for throughput. What it adds to the library is only the common Muxer form, and errors that
// callers can tell apart.
package yamux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"muxperf/transport"

	yamux "github.com/libp2p/go-yamux/v4"
)

// Protocol is the muxer's name in multistream-select and in Noise's stream_muxers.
const Protocol = "/yamux/1.0.0"

// The frame sizes are the largest that every peer of the matrix takes (rust-yamux: 1 MiB) and that
// fit the layer below: four full Noise records, or as much as one write of a large block.
const (
	NoiseFrame     = 4 * 65519
	PlaintextFrame = 256 << 10
)

// Config holds what a user may tune; the zero value means the defaults. Sizes are in bytes.
type Config struct {
	Frame         int // largest frame sent, header included
	StreamWindow  int // receive window of a stream at its start, at least 256 KiB
	MaxWindow     int // limit up to which the window grows by itself
	MaxStreams    int // streams that the peer may have open at once
	AcceptBacklog int // streams that may wait for Accept, and opens that may wait for the peer's ACK
	SessionBuffer int // payload that a session may hold unread; see bounded
	// Budget is the same for all sessions of a process; nil has no bound.
	Budget *transport.Budget
}

// The defaults. The initial window is 64 times the specification's minimum, since a window
// that has to grow costs the first seconds of a test over a long path. The largest is the product of 10 Gbit/s and
// 50 ms; the library grows towards it only where the reader keeps up and the round trip asks for it.
const (
	DefaultStreamWindow  = 16 << 20
	DefaultMaxWindow     = 64 << 20
	DefaultMaxStreams    = 16384
	DefaultAcceptBacklog = 256
)

// WithDefaults fills in what is zero; frame is the default frame size.
func (c Config) WithDefaults(frame int) Config {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.Frame, frame)
	or(&c.StreamWindow, DefaultStreamWindow)
	or(&c.MaxWindow, max(DefaultMaxWindow, c.StreamWindow))
	or(&c.MaxStreams, DefaultMaxStreams)
	or(&c.AcceptBacklog, DefaultAcceptBacklog)
	or(&c.SessionBuffer, DefaultSessionBuffer)
	return c
}

func (c Config) library() *yamux.Config {
	y := yamux.DefaultConfig()
	y.AcceptBacklog = c.AcceptBacklog
	y.MaxIncomingStreams = uint32(c.MaxStreams)
	y.InitialStreamWindowSize = uint32(c.StreamWindow)
	y.MaxStreamWindowSize = uint32(c.MaxWindow)
	y.MaxMessageSize = uint32(c.Frame)
	y.LogOutput = io.Discard
	y.ReadBufSize = 0 // the layer below reads in large pieces; one more buffer is one more copy
	y.ConnectionWriteTimeout = 10 * time.Second
	return y
}

// A Mux is a Yamux session.
type Mux struct {
	session *yamux.Session
	conn    *bounded
}

// Client makes the dialing end of a session on conn; it opens streams with odd ids.
func Client(conn net.Conn, c Config) (*Mux, error) { return wrap(yamux.Client, conn, c) }

// Server makes the listening end of a session on conn; it opens streams with even ids.
func Server(conn net.Conn, c Config) (*Mux, error) { return wrap(yamux.Server, conn, c) }

type construct = func(net.Conn, *yamux.Config, func() (yamux.MemoryManager, error)) (*yamux.Session, error)

func wrap(make construct, conn net.Conn, c Config) (*Mux, error) {
	if c.SessionBuffer <= 0 {
		c.SessionBuffer = DefaultSessionBuffer
	}
	b := newBounded(conn, c.SessionBuffer, c.Budget)
	s, err := make(b, c.library(), nil)
	if err != nil {
		return nil, fmt.Errorf("starting yamux: %w", err)
	}
	return &Mux{s, b}, nil
}

// OpenStream opens a stream. It blocks while AcceptBacklog opens wait for the peer's ACK.
func (m *Mux) OpenStream(ctx context.Context) (transport.MuxStream, error) {
	s, err := m.session.OpenStream(ctx)
	if err != nil {
		return nil, translate(err)
	}
	m.conn.opened(s.StreamID())
	return &stream{s, m.conn}, nil
}

// AcceptStream returns the next stream of the peer. It ends with the session, not with ctx: the
// library has no way to interrupt it.
func (m *Mux) AcceptStream(context.Context) (transport.MuxStream, error) {
	s, err := m.session.AcceptStream()
	if err != nil {
		if orderlyEnd(err) {
			return nil, io.EOF
		}
		return nil, translate(err)
	}
	return &stream{s, m.conn}, nil
}

// Close ends the session. Frames still queued are dropped: read each stream to its end first.
func (m *Mux) Close() error { return m.session.Close() }

// orderlyEnd reports whether a session ended as sessions do: a peer that is done closes the
// socket, and go-libp2p does so with a RST (it sets SO_LINGER to 0).
func orderlyEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// A stream translates the library's errors, and tells the session's bound what was read.
type stream struct {
	*yamux.Stream
	conn *bounded
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	s.conn.took(s.StreamID(), n)
	return n, s.conn.because(translate(err))
}

func (s *stream) Close() error {
	defer s.conn.forget(s.StreamID())
	return s.Stream.Close()
}

func (s *stream) Reset() error {
	defer s.conn.forget(s.StreamID())
	return s.Stream.Reset()
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	return n, s.conn.because(translate(err))
}

func (s *stream) CloseWrite() error { return translate(s.Stream.CloseWrite()) }

// translate maps the library's errors to the ones that all muxers share.
func translate(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case errors.Is(err, yamux.ErrStreamReset):
		return transport.ErrReset
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	case errors.Is(err, yamux.ErrSessionShutdown), errors.Is(err, yamux.ErrRemoteGoAway):
		return fmt.Errorf("%w (%v)", net.ErrClosed, err)
	}
	return err
}
