// A bound on what a session buffers.
//
// Yamux bounds each stream by its window, and nothing bounds the streams together: with windows of megabytes and
// thousands of streams a peer could have gigabytes kept for it. So the connection below the library is watched.
// The headers of the frames that pass say how much payload arrives for which stream; what the streams' readers
// have taken is subtracted; and while the rest is above the bound, the connection is not read. That holds up
// every stream of the session, the patient ones too, which is why the bound is many windows wide.

package yamux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"muxperf/transport"
)

const (
	// DefaultSessionBuffer is how much payload a session may hold that nobody has read.
	DefaultSessionBuffer = 256 << 20
	// frameOverhead is what the library keeps for each frame besides its payload, roughly: without it, frames
	// of one byte would cost fifty times what they are counted for.
	frameOverhead = 64
	// budgetPoll is how often a session looks whether the process's budget has room again.
	budgetPoll = 5 * time.Millisecond
)

// The frame header of Yamux: version, type, flags (2), stream id (4), length (4).
const (
	headerLen = 12
	typeData  = 0
	flagSYN   = 1
)

// A bounded connection counts what passes.
type bounded struct {
	net.Conn
	limit  int
	budget *transport.Budget

	// Only the library's reader touches these.
	header [headerLen]byte
	have   int    // of the header
	body   int    // payload of the current frame that has not come yet
	id     uint32 // its stream

	mu      sync.Mutex
	streams map[uint32]*held
	charge  int           // of all streams
	room    chan struct{} // closed and replaced when somebody who waits may look again
	waiting bool
	closed  bool
	failed  error // why reading ended, if not in order
}

// held is what one stream's reader has not taken.
type held struct{ bytes, frames int }

func (h held) charge() int { return h.bytes + frameOverhead*h.frames }

func newBounded(conn net.Conn, limit int, budget *transport.Budget) *bounded {
	return &bounded{Conn: conn, limit: limit, budget: budget, streams: map[uint32]*held{}, room: make(chan struct{})}
}

// Read waits for room, reads, and counts.
func (b *bounded) Read(p []byte) (int, error) {
	if err := b.wait(); err != nil {
		return 0, err
	}
	n, err := b.Conn.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.follow(p[:n])
	if err != nil && !b.closed && !orderlyEnd(err) {
		b.failed = err
	}
	return n, err
}

// because adds to a stream's end why its session ended: the library resets the streams and keeps the reason.
func (b *bounded) because(err error) error {
	if !errors.Is(err, transport.ErrReset) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		return err
	}
	return fmt.Errorf("%w, since the connection broke: %w", err, b.failed)
}

// follow takes what arrived apart.
func (b *bounded) follow(p []byte) {
	for len(p) > 0 {
		if b.body > 0 {
			n := min(b.body, len(p))
			b.body -= n
			p = p[n:]
			b.change(b.id, n, 0)
			continue
		}
		n := copy(b.header[b.have:], p)
		p = p[n:]
		if b.have += n; b.have < headerLen {
			return
		}
		b.have = 0
		b.frame()
	}
}

// frame looks at a whole header. A stream that the peer opens begins to count here; frames for streams that are
// not known are thrown away by the library.
func (b *bounded) frame() {
	b.id = binary.BigEndian.Uint32(b.header[4:8])
	if binary.BigEndian.Uint16(b.header[2:4])&flagSYN != 0 && b.streams[b.id] == nil {
		b.streams[b.id] = &held{}
	}
	if b.header[1] != typeData {
		return
	}
	b.body = int(binary.BigEndian.Uint32(b.header[8:12]))
	b.change(b.id, 0, 1)
}

// change adds to what a stream holds; the lock is held.
func (b *bounded) change(id uint32, bytes, frames int) {
	h := b.streams[id]
	if h == nil || b.closed {
		return
	}
	before := h.charge()
	h.bytes += bytes
	h.frames += frames
	b.account(h.charge() - before)
}

func (b *bounded) account(n int) {
	b.charge += n
	b.budget.Add(n)
	if n < 0 && b.waiting && !b.full() {
		b.wake()
	}
}

func (b *bounded) wake() {
	b.waiting = false
	close(b.room)
	b.room = make(chan struct{})
}

func (b *bounded) full() bool { return b.charge > b.limit || b.budget.Spent(b.charge) }

// wait returns when there is room, or net.ErrClosed.
func (b *bounded) wait() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.full() && !b.closed {
		b.waiting = true
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-time.After(budgetPoll): // others may have given back
		}
		b.mu.Lock()
	}
	if b.closed {
		return net.ErrClosed
	}
	return nil
}

// opened begins to count for a stream of ours.
func (b *bounded) opened(id uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams[id] == nil {
		b.streams[id] = &held{}
	}
}

// took subtracts what a reader has taken. Of the frames it is their share: readers do not see them.
func (b *bounded) took(id uint32, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.streams[id]
	if h == nil || n == 0 {
		return
	}
	n = min(n, h.bytes)
	frames := h.frames
	if n < h.bytes {
		frames = h.frames * n / h.bytes
	}
	b.change(id, -n, -frames)
}

// forget ends a stream: what it held is nobody's any more.
func (b *bounded) forget(id uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.streams[id]; h != nil {
		b.change(id, -h.bytes, -h.frames)
		delete(b.streams, id)
	}
}

// Close gives everything back and wakes the reader.
func (b *bounded) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.account(-b.charge)
		b.closed = true
		b.wake()
	}
	b.mu.Unlock()
	return b.Conn.Close()
}
