// A session in memory, for tests in fake time: every blocked read and write is one that testing/synctest sees as
// such, and whoever holds it can stop it, cut it or change what is said at a chosen message.
package control

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxperf/transport"
)

// memoryBuffer is what a direction of a stream holds before its writer has to wait.
const memoryBuffer = 64 << 10

// A world is a connection and what has become of it.
type world struct {
	mu     sync.Mutex
	cond   *sync.Cond
	frozen bool  // nothing is delivered any more, and nobody is told
	cut    bool  // ended in order
	broken error // ended at once, what was in flight is lost
	ends   []*end
	accept chan *end
	// tamper sees each write: what it returns is delivered, and then after is called.
	tamper func(from *end, b []byte) (deliver []byte, after func())
}

func newWorld() *world {
	w := &world{accept: make(chan *end, 16)}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// A queue is one direction of a stream.
type queue struct {
	b         []byte
	swallowed int // what a frozen world has taken
	ended     bool
	deaf      bool // its reader has closed
}

// An end is one end of a stream.
type end struct {
	w           *world
	client      bool
	protocol    string
	in, out     *queue
	read, write time.Time
	closed      bool
}

func past(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (e *end) Read(b []byte) (int, error) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	for {
		switch {
		case e.closed:
			return 0, net.ErrClosed
		case past(e.read):
			return 0, os.ErrDeadlineExceeded
		case e.w.broken != nil:
			return 0, e.w.broken
		case len(e.in.b) > 0:
			n := copy(b, e.in.b)
			e.in.b = e.in.b[n:]
			e.w.cond.Broadcast()
			return n, nil
		case e.in.ended, e.w.cut:
			return 0, io.EOF
		}
		e.w.cond.Wait()
	}
}

func (e *end) Write(b []byte) (int, error) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	if e.w.tamper != nil && !e.w.frozen && !e.w.cut && e.w.broken == nil {
		if deliver, after := e.w.tamper(e, b); after != nil {
			e.out.b = append(e.out.b, deliver...)
			after()
			e.w.cond.Broadcast()
			return len(b), nil
		}
	}
	for {
		switch {
		case e.closed:
			return 0, net.ErrClosed
		case past(e.write):
			return 0, os.ErrDeadlineExceeded
		case e.w.broken != nil:
			return 0, e.w.broken
		case e.w.cut, e.out.deaf:
			return 0, syscall.EPIPE
		case e.w.frozen && e.out.swallowed < memoryBuffer:
			e.out.swallowed += len(b)
			return len(b), nil
		case !e.w.frozen && len(e.out.b) < memoryBuffer:
			e.out.b = append(e.out.b, b...)
			e.w.cond.Broadcast()
			return len(b), nil
		}
		e.w.cond.Wait()
	}
}

func (e *end) Close() error {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	e.closed = true
	if !e.w.frozen {
		e.out.ended, e.in.deaf = true, true
	}
	e.w.cond.Broadcast()
	return nil
}

func (e *end) Reset() error      { return e.Close() }
func (e *end) CloseWrite() error { return transport.ErrNoHalfClose }
func (e *end) Protocol() string  { return e.protocol }

func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}
func (e *end) SetReadDeadline(t time.Time) error  { return e.deadline(&e.read, t) }
func (e *end) SetWriteDeadline(t time.Time) error { return e.deadline(&e.write, t) }

func (e *end) deadline(which *time.Time, t time.Time) error {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	*which = t
	e.w.cond.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() {
			e.w.mu.Lock()
			defer e.w.mu.Unlock()
			e.w.cond.Broadcast()
		})
	}
	return nil
}

// Open makes a stream; the other end of it is in accept. The world is the client's session, and the server's.
func (w *world) Open(_ context.Context, protocol string) (transport.Stream, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut || w.broken != nil {
		return nil, net.ErrClosed
	}
	up, down := &queue{}, &queue{}
	mine := &end{w: w, client: true, protocol: protocol, in: down, out: up}
	theirs := &end{w: w, protocol: protocol, in: up, out: down}
	w.ends = append(w.ends, mine)
	if !w.frozen {
		w.ends = append(w.ends, theirs)
		w.accept <- theirs
	}
	return mine, nil
}

func (w *world) Accept(context.Context) (transport.Stream, error) { return nil, io.EOF }
func (w *world) Close() error                                     { return nil }
func (w *world) Info() transport.Info                             { return transport.Info{} }
func (w *world) TCPInfo() []transport.TCPInfo                     { return nil }

// allClosed reports the streams that somebody has left open.
func (w *world) allClosed(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ends {
		if !e.closed {
			t.Errorf("a stream of %s was left open at an end (the client's: %t)", e.protocol, e.client)
		}
	}
}
