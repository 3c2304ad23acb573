// The portable engine: a goroutine for each connection.

package testee

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"muxperf/transport/tcp"
)

const (
	netBuffer    = 64 << 10
	drainTimeout = 10 * time.Second
	stallAfter   = time.Second // a write that waits for so long is a peer that does not read
)

type netEngine struct {
	t     *Testee
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func newNetEngine(t *Testee) engine { return &netEngine{t: t, conns: map[net.Conn]struct{}{}} }

func (e *netEngine) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, e.close)
	defer stop()
	defer e.wg.Wait()
	for {
		conn, err := e.t.listener.Accept()
		switch {
		case err == nil:
			e.start(ctx, conn)
		case ctx.Err() != nil || isClosed(err):
			return nil
		case tcp.Transient(err):
			e.t.cfg.Log.Warn("cannot accept for the moment", "testee", e.t.spec.String(), "error", err)
			select {
			case <-time.After(pauseAccept):
			case <-ctx.Done():
			}
		default:
			e.close()
			return err
		}
	}
}

// close ends the listener and every connection.
func (e *netEngine) close() {
	e.t.listener.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		c.Close()
	}
}

func (e *netEngine) start(ctx context.Context, conn net.Conn) {
	e.mu.Lock()
	e.conns[conn] = struct{}{}
	e.mu.Unlock()
	if ctx.Err() != nil {
		conn.Close()
	}
	e.t.c.accepted.Add(1)
	e.t.c.open.Add(1)
	e.wg.Go(func() {
		peer := conn.RemoteAddr().String()
		e.t.debug("connected", peer)
		e.handle(conn, peer)
		conn.Close()
		e.mu.Lock()
		delete(e.conns, conn)
		e.mu.Unlock()
		e.t.c.open.Add(-1)
		e.t.debug("disconnected", peer)
	})
}

func (e *netEngine) handle(conn net.Conn, peer string) {
	switch e.t.spec.Mode {
	case Chargen:
		for block := letters(); ; {
			n, err := conn.Write(block)
			e.t.c.out.Add(int64(n))
			if err != nil {
				return
			}
		}
	case Discard:
		buf := make([]byte, netBuffer)
		for {
			n, err := conn.Read(buf)
			e.t.c.in.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	e.echo(conn, peer)
}

// echo reads and writes in turn: what is not taken stops the reading. With StallDrop a queue of bounded
// size stands between the two, and what does not fit is dropped.
func (e *netEngine) echo(conn net.Conn, peer string) {
	noted := false
	write := func(b []byte) error { return e.writeAll(conn, b, peer, &noted) }
	if e.t.cfg.OnStall == StallDrop {
		q := newDropQueue(e.t.cfg.StallCap, write)
		defer q.close()
		write = func(b []byte) error {
			e.t.c.dropped.Add(int64(len(b) - q.put(b)))
			return nil
		}
	}
	buf := make([]byte, netBuffer)
	for {
		n, err := conn.Read(buf)
		e.t.c.in.Add(int64(n))
		if n > 0 {
			if err := write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return // at the peer's end of data all that it sent has been echoed: close
		}
	}
}

// writeAll writes b, and notes, once a connection, when the peer takes its time.
func (e *netEngine) writeAll(conn net.Conn, b []byte, peer string, noted *bool) error {
	for len(b) > 0 {
		if !*noted {
			_ = conn.SetWriteDeadline(time.Now().Add(stallAfter))
		}
		n, err := conn.Write(b)
		e.t.c.out.Add(int64(n))
		b = b[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) && !*noted {
			*noted = true
			e.t.stalled(peer)
			_ = conn.SetWriteDeadline(time.Time{})
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A dropQueue hands bytes to a writer, up to a cap; what is beyond it does not go in.
type dropQueue struct {
	mu    sync.Mutex
	cond  *sync.Cond
	buf   []byte
	out   int // bytes that are being written
	cap   int
	ended bool
	done  chan struct{}
}

func newDropQueue(limit int, write func([]byte) error) *dropQueue {
	q := &dropQueue{cap: limit, done: make(chan struct{})}
	q.cond = sync.NewCond(&q.mu)
	go q.drain(write)
	return q
}

// put takes what fits and returns how much that was.
func (q *dropQueue) put(b []byte) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(b), max(0, q.cap-len(q.buf)-q.out))
	q.buf = append(q.buf, b[:n]...)
	q.cond.Signal()
	return n
}

func (q *dropQueue) drain(write func([]byte) error) {
	defer close(q.done)
	var spare []byte
	for {
		q.mu.Lock()
		q.out = 0
		for len(q.buf) == 0 && !q.ended {
			q.cond.Wait()
		}
		b := q.buf
		q.buf, q.out = spare[:0], len(b)
		q.mu.Unlock()
		if len(b) == 0 || write(b) != nil {
			return
		}
		spare = b
	}
}

// close writes what is left and waits for it.
func (q *dropQueue) close() {
	q.mu.Lock()
	q.ended = true
	q.cond.Signal()
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-time.After(drainTimeout): // a peer that never reads keeps nothing of ours: the caller closes its connection
	}
}
