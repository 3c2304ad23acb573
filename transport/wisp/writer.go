// The writer: frames of all streams in one order, as many as are there in one call to the socket.
//
// A frame is put into a buffer under a lock, and a goroutine writes what has gathered since its last write,
// so that small packets share a system call. What waits is bounded; a stream whose frame does not fit waits,
// within its deadline. A small frame that finds nothing waiting is written by its stream itself: no goroutine
// has to wake up for a request and its answer.

package wisp

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"muxperf/transport/wisp/ws"
)

const (
	maxPending  = 512 << 10
	inlineLimit = 4 << 10
	// safety is how long one write to the socket may take: a peer that reads nothing for so long is gone.
	safety = 60 * time.Second
)

type writer struct {
	conn   net.Conn
	client bool
	mask   ws.Mask

	mu       sync.Mutex
	pending  []byte
	spare    []byte
	busy     bool          // somebody is writing to the socket
	wake     chan struct{} // tells the goroutine that something is pending
	written  waiters       // for pending to have been written
	waiting  []*ticket
	reserved int // bytes that were granted and are not pending yet
	err      error
	closed   chan struct{}
	gone     chan struct{} // the goroutine has ended
}

func newWriter(conn net.Conn, client bool, mask ws.Mask) *writer {
	w := &writer{conn: conn, client: client, mask: mask, wake: make(chan struct{}, 1),
		closed: make(chan struct{}), gone: make(chan struct{})}
	go w.run()
	return w
}

// run writes what is pending until the writer is closed.
func (w *writer) run() {
	defer close(w.gone)
	for {
		select {
		case <-w.wake:
			w.flush()
		case <-w.closed:
			return
		}
	}
}

// flush writes until nothing is pending.
func (w *writer) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		return
	}
	w.busy = true
	for len(w.pending) > 0 && w.err == nil {
		b := w.pending
		w.pending = w.spare[:0]
		w.grant()
		w.mu.Unlock()
		err := w.write(b)
		w.mu.Lock()
		w.spare = b
		if err != nil {
			w.err = err
		}
		w.written.wake()
	}
	w.busy = false
}

func (w *writer) write(b []byte) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(safety)); err != nil {
		return err
	}
	_, err := w.conn.Write(b)
	return err
}

// packet sends a packet, whose payload is copied; it waits for room until expired is closed.
func (w *writer) packet(kind byte, id uint32, payload []byte, expired <-chan struct{}) error {
	need := ws.HeaderRoom + headerLen + len(payload)
	if err := w.lockWithRoom(need, expired); err != nil {
		return err
	}
	first := len(w.pending) == 0
	var head [headerLen]byte
	head[0] = kind
	binary.LittleEndian.PutUint32(head[1:], id)
	w.pending = ws.Append(w.pending, ws.OpBinary, w.client, w.mask, head[:], payload)
	return w.release(first && need <= inlineLimit)
}

// raw sends a frame that is complete. It does not wait for room, since the reader calls it; a peer that
// sends pings and reads no pong is cut off at twice the bound.
func (w *writer) raw(frame []byte) error {
	w.mu.Lock()
	if w.err == nil && len(w.pending) > 2*maxPending {
		w.err = errors.New("the peer does not read what it asks for")
	}
	if w.err != nil {
		defer w.mu.Unlock()
		return w.err
	}
	w.pending = append(w.pending, frame...)
	return w.release(false)
}

// lockWithRoom takes the lock once need bytes fit and it is the caller's turn: whoever waits is served in the
// order of coming, so that no stream starves beside others that write at once.
func (w *writer) lockWithRoom(need int, expired <-chan struct{}) error {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return w.err
	}
	if len(w.waiting) == 0 && w.fits(need) {
		return nil
	}
	t := ticketPool.Get().(*ticket)
	t.need, t.holds = need, false
	w.waiting = append(w.waiting, t)
	w.mu.Unlock()
	var err error
	select {
	case <-t.granted:
	case <-expired:
		err = os.ErrDeadlineExceeded
	case <-w.closed:
		err = net.ErrClosed
	}
	w.mu.Lock()
	w.giveBack(t)
	ticketPool.Put(t)
	if err == nil {
		err = w.err
	}
	if err != nil {
		w.grant()
		w.mu.Unlock()
	}
	return err
}

// A ticket is a place in the queue for room.
type ticket struct {
	need    int
	granted chan struct{} // holds a token when it is
	holds   bool          // room is reserved for it
}

// ticketPool keeps tickets: streams that flood need one for nearly every frame.
var ticketPool = sync.Pool{New: func() any { return &ticket{granted: make(chan struct{}, 1)} }}

// fits reports whether need bytes have room; anything has if nothing waits.
func (w *writer) fits(need int) bool {
	used := len(w.pending) + w.reserved
	return used == 0 || used+need <= maxPending
}

// grant reserves room for those who wait, in their order.
func (w *writer) grant() {
	for len(w.waiting) > 0 && w.fits(w.waiting[0].need) {
		t := w.waiting[0]
		w.waiting = slices.Delete(w.waiting, 0, 1)
		t.holds = true
		w.reserved += t.need
		t.granted <- struct{}{}
	}
}

// giveBack ends a ticket, granted or not.
func (w *writer) giveBack(t *ticket) {
	select { // a wait that ended otherwise may have been granted all the same
	case <-t.granted:
	default:
	}
	if t.holds {
		w.reserved -= t.need
		return
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(x *ticket) bool { return x == t })
}

// release unlocks, and has what is pending written: by the caller, or by the goroutine.
func (w *writer) release(inline bool) error {
	busy := w.busy
	w.mu.Unlock()
	switch {
	case busy:
	case inline:
		w.flush()
	default:
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// drain waits until everything is written, or for d.
func (w *writer) drain(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w.mu.Lock()
		idle := w.err != nil || len(w.pending) == 0 && !w.busy
		if idle {
			w.mu.Unlock()
			return
		}
		written := w.written.add()
		w.mu.Unlock()
		late := false
		select {
		case <-written:
		case <-time.After(time.Millisecond):
		case <-timer.C:
			late = true
		}
		w.mu.Lock()
		w.written.done(written)
		w.mu.Unlock()
		if late {
			return
		}
	}
}

// close ends the goroutine and fails whoever waits.
func (w *writer) close() {
	w.mu.Lock()
	if w.err == nil {
		w.err = net.ErrClosed
	}
	select {
	case <-w.closed:
	default:
		close(w.closed)
	}
	w.mu.Unlock()
	_ = w.conn.SetWriteDeadline(time.Unix(1, 0))
	<-w.gone
}
