// The writing half: sealing into one buffer while the other is sent. The picture stands in conn.go.

package noise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// errNonces: 2^64-1 records have been sent or received under one key.
var errNonces = errors.New("noise: the nonces of this connection are used up")

type writer struct {
	conn net.Conn
	crew *crew // owned by who holds mu

	turn sync.Mutex // held through a Write, so that two do not mix

	mu      sync.Mutex
	changed sync.Cond // any of the below
	fill    []byte    // sealed records, in order, that nobody sends yet
	out     []byte    // being sent if sending, spare otherwise
	sending bool      // by the flusher or by a Write
	flusher bool      // has been started
	ended   bool      // by finish or close: no more writes
	closed  bool      // by close: the flusher ends once all is sent
	nonce   uint64    // of the next record
	err     error     // final
}

func newWriter(conn net.Conn, crew *crew) *writer {
	crew.sealing = true
	w := &writer{conn: conn, crew: crew}
	w.changed.L = &w.mu
	return w
}

func (w *writer) write(b []byte) (n int, err error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(b) == 0 {
		return 0, w.writable()
	}
	alone := len(b) <= maxPlain && !w.sending && len(w.fill) == 0
	for n < len(b) {
		if err := w.writable(); err != nil {
			return n, err
		}
		m, err := w.seal(b[n:])
		n += m
		switch {
		case err != nil:
			w.err = err
			return n, err
		case alone:
			w.send()
			if w.err != nil {
				return 0, w.err
			}
		case m == 0:
			w.changed.Wait() // until the flusher has taken the buffer
		}
		if len(w.fill) > 0 && !w.sending {
			w.wakeFlusher()
		}
	}
	return n, nil
}

// writable returns why nothing can be written any more.
func (w *writer) writable() error {
	switch {
	case w.err != nil:
		return w.err
	case w.closed:
		return net.ErrClosed
	case w.ended:
		return io.ErrClosedPipe
	}
	return nil
}

// seal appends records of b to fill, as many as there is room for, and returns how many bytes of b
// are in them.
func (w *writer) seal(b []byte) (n int, err error) {
	at, jobs := len(w.fill), w.crew.jobs[:0]
	for n < len(b) {
		plain := b[n:min(n+maxPlain, len(b))]
		if at+lengthSize+len(plain)+tagSize > batch {
			break
		}
		if w.nonce == maxNonce {
			return 0, errNonces
		}
		jobs = append(jobs, job{nonce: w.nonce, data: plain})
		w.nonce++
		n += len(plain)
		at += lengthSize + len(plain) + tagSize
	}
	w.crew.jobs = jobs
	w.reserve(at)
	at = len(w.fill)
	w.fill = w.fill[:cap(w.fill)]
	for i := range jobs {
		size := len(jobs[i].data) + tagSize
		binary.BigEndian.PutUint16(w.fill[at:], uint16(size))
		at += lengthSize
		jobs[i].dst = w.fill[at : at : at+size]
		at += size
	}
	w.fill = w.fill[:at]
	w.crew.run()
	clear(jobs) // keep nothing of the caller's alive
	return n, nil
}

// reserve makes room for size bytes in fill. A connection that carries only small messages never
// has large buffers.
func (w *writer) reserve(size int) {
	if size <= cap(w.fill) {
		return
	}
	if size > maxRecord {
		size = batch
	}
	w.fill = append(make([]byte, 0, max(size, min(2*cap(w.fill), batch))), w.fill...)
}

// send sends what is in fill, with mu released meanwhile. Nobody else may be sending.
func (w *writer) send() {
	w.out, w.fill = w.fill, w.out[:0]
	w.sending = true
	w.changed.Broadcast() // there is room in fill
	w.mu.Unlock()
	_, err := w.conn.Write(w.out)
	w.mu.Lock()
	w.sending = false
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("sending noise records: %w", err)
	}
	if w.err != nil {
		w.fill = w.fill[:0]
	}
	w.changed.Broadcast()
}

// wakeFlusher has fill sent, by a goroutine that exists only on connections that need it.
func (w *writer) wakeFlusher() {
	if !w.flusher {
		w.flusher = true
		go w.flush()
		return
	}
	w.changed.Broadcast()
}

// flush is the flusher. It ends with the first error, or once all is sent after close.
func (w *writer) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil {
		switch {
		case w.sending:
			w.changed.Wait()
		case len(w.fill) > 0:
			w.send()
		case w.closed:
			return
		default:
			w.changed.Wait()
		}
	}
}

// finish refuses further writes and waits until all is sent.
func (w *writer) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	return w.drained()
}

// drained waits until all is sent, and returns why it was not.
func (w *writer) drained() error {
	for w.err == nil && (w.sending || len(w.fill) > 0) {
		w.changed.Wait()
	}
	return w.err
}

// close does so within linger, and ends the flusher.
func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.closed = true, true
	if w.err != nil {
		w.changed.Broadcast()
		return nil // a Write has returned it, or the connection is dead anyway
	}
	if w.sending || len(w.fill) > 0 {
		_ = w.conn.SetWriteDeadline(time.Now().Add(linger))
	}
	w.changed.Broadcast()
	return w.drained()
}

// setDeadline sets the deadline of sending; after close it is close's own.
func (w *writer) setDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return net.ErrClosed
	}
	return w.conn.SetWriteDeadline(t)
}
