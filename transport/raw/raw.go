// Package raw is the muxer that is none: each stream is a connection of its own. A client's bundle
// dials one more connection for each stream it opens, so that tests written for streams run
// unchanged over plain sockets, as iperf3's -P does.
package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"muxperf/transport"
)

// halfCloser is a connection that can end one direction alone.
type halfCloser interface{ CloseWrite() error }

// A Bundle is a Muxer over connections. It is safe for concurrent use.
type Bundle struct {
	dial func(context.Context) (net.Conn, error) // nil on the accepting side

	mu     sync.Mutex
	spare  net.Conn // the first connection, until a stream takes it
	open   map[*stream]struct{}
	closed bool
	done   chan struct{} // closed with the bundle, or with an accepted connection's only stream
}

// Client makes a Bundle of a dialer whose first connection is already there: it shows at once
// whether the peer can be reached.
func Client(first net.Conn, dial func(context.Context) (net.Conn, error)) *Bundle {
	return &Bundle{dial: dial, spare: first, open: map[*stream]struct{}{}, done: make(chan struct{})}
}

// Server makes a Bundle of one accepted connection: a single stream, which AcceptStream returns.
func Server(conn net.Conn) *Bundle {
	return &Bundle{spare: conn, open: map[*stream]struct{}{}, done: make(chan struct{})}
}

// OpenStream takes the first connection or dials another.
func (b *Bundle) OpenStream(ctx context.Context) (transport.MuxStream, error) {
	if s := b.takeSpare(); s != nil {
		return s, nil
	}
	if b.dial == nil {
		return nil, errors.New("without a muxer only the dialing side opens streams")
	}
	conn, err := b.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening a connection for one more stream: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	return b.add(conn), nil
}

// AcceptStream returns the accepted connection once, and then waits for it to end. A dialer's
// bundle accepts nothing and waits for its own end.
func (b *Bundle) AcceptStream(ctx context.Context) (transport.MuxStream, error) {
	if b.dial == nil {
		if s := b.takeSpare(); s != nil {
			return s, nil
		}
	}
	select {
	case <-b.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// takeSpare returns the waiting connection as a stream; nil if there is none.
func (b *Bundle) takeSpare() *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.spare == nil {
		return nil
	}
	conn := b.spare
	b.spare = nil
	return b.add(conn)
}

func (b *Bundle) add(conn net.Conn) *stream {
	s := &stream{Conn: conn, bundle: b}
	b.open[s] = struct{}{}
	return s
}

// forget drops a stream that was closed; with an accepted connection the bundle ends too.
func (b *Bundle) forget(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.open[s]; !ok {
		return
	}
	delete(b.open, s)
	if b.dial == nil && !b.closed {
		b.closed = true
		close(b.done)
	}
}

// Conns returns the connections that are open now.
func (b *Bundle) Conns() []net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	var conns []net.Conn
	if b.spare != nil {
		conns = append(conns, b.spare)
	}
	for s := range b.open {
		conns = append(conns, s.Conn)
	}
	return conns
}

// Close closes every connection of the bundle.
func (b *Bundle) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	close(b.done)
	b.mu.Unlock()
	var err error
	for _, c := range b.Conns() {
		err = errors.Join(err, c.Close())
	}
	return err
}

// A stream is a whole connection.
type stream struct {
	net.Conn
	bundle *Bundle
}

// CloseWrite sends the FIN of the socket, below a security layer if there is one.
func (s *stream) CloseWrite() error {
	hc, ok := s.Conn.(halfCloser)
	if !ok {
		return transport.ErrNoHalfClose
	}
	return hc.CloseWrite()
}

// Reset closes the connection with a TCP RST where the socket allows it, so that the peer learns
// that the stream was abandoned rather than ended.
func (s *stream) Reset() error {
	if l, ok := transport.Underlying(s.Conn).(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	return s.Close()
}

// Close closes the connection.
func (s *stream) Close() error {
	s.bundle.forget(s)
	return s.Conn.Close()
}
