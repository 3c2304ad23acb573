// A stream: a queue of payloads on the way in, a credit of packets on the way out.

package wisp

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"muxperf/transport"
)

// A Stream is one stream of a Conn.
type Stream struct {
	c    *Conn
	id   uint32
	dest connect
	kind byte

	readDeadline, writeDeadline deadline

	mu       sync.Mutex
	queue    []piece
	bytes    int     // in the queue
	spare    []piece // the array of the queue, from its beginning; see push
	waiting  waiters // for the queue or the state to change
	consumed int     // packets since the last CONTINUE
	credit   int     // packets that may be sent; -1: any number (a server's, and UDP)
	ended    error   // what Read says when the queue is empty; nil while the stream is open
	closed   bool    // we have closed it
	opened   bool    // the server has confirmed, or has sent something

	// sink takes what it can at once and without waiting; nil if the stream has none. See straight.
	sink func([]byte) int
}

// A piece is a payload in the buffer into which it was read.
type piece struct{ buf, rest []byte }

func newStream(c *Conn, id uint32, dest connect) *Stream {
	s := &Stream{c: c, id: id, dest: dest, kind: dest.kind, credit: -1}
	if c.client && dest.kind == streamTCP {
		s.credit = c.credit
	}
	return s
}

// Destination is what the client asked for.
func (s *Stream) Destination() (network, host string, port int) {
	network = "tcp"
	if s.kind == streamUDP {
		network = "udp"
	}
	return network, s.dest.host, s.dest.port
}

// sinkTo has arriving payloads offered to sink before they are queued.
func (s *Stream) sinkTo(sink func([]byte) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink = sink
}

// arrived queues a payload. The buffer belongs to the stream from here on.
func (s *Stream) arrived(buf, payload []byte) {
	s.mu.Lock()
	if len(s.queue) == 0 && s.sink != nil {
		payload = s.straight(payload)
	}
	if gone := len(payload) == 0 && s.sink != nil; gone || s.ended != nil || s.closed {
		renew := uint32(0)
		if gone {
			renew = s.consume()
		}
		s.mu.Unlock()
		putBuffer(buf)
		_ = s.renew(renew) // an error is the connection's, and the reader meets it next
		return
	}
	if over := !s.c.client && len(s.queue) >= 2*s.c.credit; over {
		s.mu.Unlock()
		putBuffer(buf)
		if s.kind == streamUDP {
			return // a datagram that finds no room is lost, as datagrams are
		}
		s.c.violations.Add(1)
		s.abort(ReasonThrottled, fmt.Errorf("%w: more packets than the credit allows", transport.ErrReset))
		return
	}
	s.c.reserve(len(payload))
	s.push(piece{buf, payload})
	s.bytes += len(payload)
	s.opened = true
	s.waiting.wake()
	s.mu.Unlock()
	s.waitForRoom()
}

// push appends to the queue. The queue walks through its array as pieces leave it; at the array's end it goes back
// to the beginning, if that is half empty, and into a larger array otherwise. The lock is held.
func (s *Stream) push(p piece) {
	if n := len(s.queue); n == cap(s.queue) && n > 0 && 2*n <= cap(s.spare) {
		s.queue = append(s.spare[:0], s.queue...)
		clear(s.spare[n:cap(s.spare)])
	}
	s.queue = append(s.queue, p)
	if cap(s.queue) > cap(s.spare) {
		s.spare = s.queue[:0]
	}
}

// waitForRoom holds the reader while more is queued than the bounds in bytes allow. For a client it is the only
// backpressure that there is against a server. A server has the credit as well, but credit counts packets: with
// packets of a mebibyte, or with many stalled streams at once, the bounds in bytes come first, and then every
// stream of the connection waits rather than one loses a byte.
func (s *Stream) waitForRoom() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ended == nil && !s.closed {
		room, later, full := s.c.fullUp()
		if s.bytes <= s.c.limits.streamBytes && !full {
			return
		}
		changed := s.waiting.add()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-room:
		case <-later:
		case <-s.c.done:
		}
		s.mu.Lock()
		s.waiting.done(changed)
		if closed(s.c.done) {
			return
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Read returns what has arrived. After the queue is empty the error is io.EOF for a voluntary close,
// transport.ErrReset or transport.ErrRefused with the reason otherwise.
func (s *Stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	for len(s.queue) == 0 {
		if s.ended != nil || s.closed {
			err := s.ended
			if s.closed {
				err = net.ErrClosed
			}
			s.mu.Unlock()
			return 0, err
		}
		if err := s.wait(s.readDeadline.expired()); err != nil {
			s.mu.Unlock()
			return 0, err
		}
	}
	p := &s.queue[0]
	n := copy(b, p.rest)
	gone := n
	if s.kind == streamUDP {
		gone = len(p.rest) // a datagram is read at once; what does not fit is lost
	}
	p.rest = p.rest[gone:]
	renew := s.took(gone)
	s.mu.Unlock()
	return n, s.renew(renew)
}

// wait releases the lock until something changes; expired ends it with os.ErrDeadlineExceeded.
func (s *Stream) wait(expired <-chan struct{}) error {
	changed := s.waiting.add()
	s.mu.Unlock()
	var err error
	select {
	case <-changed:
	case <-expired:
		err = os.ErrDeadlineExceeded
	}
	s.mu.Lock()
	s.waiting.done(changed)
	return err
}

// next appends the payloads that wait to b, at most as many as b has room for, and waits for the first. They
// stay the stream's until release. An empty result is the end.
func (s *Stream) next(b [][]byte) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.ended != nil || s.closed {
			return b, s.ended
		}
		if err := s.wait(nil); err != nil {
			return b, err
		}
	}
	for _, p := range s.queue[:min(len(s.queue), cap(b))] {
		b = append(b, p.rest)
	}
	return b, nil
}

// release is done with the first n payloads.
func (s *Stream) release(n int) error {
	s.mu.Lock()
	renew := uint32(0)
	for ; n > 0 && len(s.queue) > 0; n-- { // an abandoned stream has none left
		size := len(s.queue[0].rest)
		s.queue[0].rest = nil
		renew += s.took(size)
	}
	s.mu.Unlock()
	return s.renew(renew)
}

// took accounts for n bytes that left the queue; a piece that is empty goes. It returns the credit to renew.
func (s *Stream) took(n int) uint32 {
	s.bytes -= n
	s.c.reserve(-n)
	if len(s.queue[0].rest) > 0 {
		return 0
	}
	putBuffer(s.queue[0].buf)
	s.queue[0] = piece{}
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = s.spare[:0]
	}
	s.waiting.wake()
	return s.consume()
}

// straight offers a payload to the sink and returns what it did not take. It is called with the lock held and
// an empty queue, so that nobody else writes to where the sink leads: whoever empties the queue is done with a
// piece only after writing it. The bytes are then still in the cache, and no goroutine has to wake up for them.
func (s *Stream) straight(payload []byte) []byte {
	sink := s.sink
	s.mu.Unlock()
	n := sink(payload)
	s.mu.Lock()
	return payload[n:]
}

// consume counts a packet that has left the queue and returns the credit to renew; 0 if it is not time yet.
func (s *Stream) consume() uint32 {
	if s.c.client || s.kind != streamTCP || s.ended != nil {
		return 0
	}
	// What is granted is what was consumed, and not N less what is queued, as the text of the protocol has it:
	// a CONTINUE replaces the client's credit, and packets that were on their way meanwhile would be granted a
	// second time. So a client that keeps to its credit never has more than 1.5 N packets with us.
	s.consumed++
	if step := max(1, s.c.credit/2); s.consumed >= step {
		s.consumed = 0
		return uint32(step)
	}
	return 0
}

// renew tells the client how many packets it may send.
func (s *Stream) renew(credit uint32) error {
	if credit == 0 {
		return nil
	}
	return s.c.w.packet(typeContinue, s.id, binary.LittleEndian.AppendUint32(nil, credit), s.c.done)
}

// grant takes a CONTINUE: the credit is replaced, not added to.
func (s *Stream) grant(credit uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = true
	if s.credit >= 0 {
		s.credit = int(min(credit, 1<<30))
	}
	s.waiting.wake()
}

// Settle waits until the server has been quiet about a stream for a while, at most for limit: many servers
// drop what they have queued when a CLOSE comes, and the credit that they renew is the only sign of what
// they have passed on.
func (s *Stream) Settle(quiet, limit time.Duration) {
	end := time.NewTimer(limit)
	defer end.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ended == nil && !s.closed {
		changed := s.waiting.add()
		s.mu.Unlock()
		silence := time.NewTimer(quiet)
		still := false
		select {
		case <-changed:
		case <-silence.C:
			still = true
		case <-end.C:
			still = true
		}
		silence.Stop()
		s.mu.Lock()
		s.waiting.done(changed)
		if still {
			return
		}
	}
}

// Write sends b in packets of at most the payload size, as far as the credit goes.
func (s *Stream) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 || written == 0 {
		expired := s.writeDeadline.expired()
		if err := s.takeCredit(expired); err != nil {
			return written, err
		}
		part := b[:min(len(b), s.c.payload)]
		if err := s.c.w.packet(typeData, s.id, part, expired); err != nil {
			return written, err
		}
		written += len(part)
		if b = b[len(part):]; len(b) == 0 {
			break
		}
	}
	return written, nil
}

// takeCredit waits for a packet's credit.
func (s *Stream) takeCredit(expired <-chan struct{}) error {
	select {
	case <-expired:
		return os.ErrDeadlineExceeded
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return net.ErrClosed
		case s.ended == io.EOF:
			return fmt.Errorf("%w: it has closed the stream", transport.ErrReset)
		case s.ended != nil:
			return s.ended
		case s.credit < 0:
			return nil
		case s.credit > 0:
			s.credit--
			return nil
		}
		if err := s.wait(expired); err != nil {
			return err
		}
	}
}

// closedByPeer ends the stream; what is queued can still be read.
func (s *Stream) closedByPeer(reason Reason) {
	err := io.EOF
	switch {
	case reason == ReasonVoluntary:
	case reason >= ReasonInvalid && reason <= ReasonThrottled && reason != ReasonIdle:
		err = fmt.Errorf("%w: %s", transport.ErrRefused, reason)
	default:
		err = fmt.Errorf("%w: %s", transport.ErrReset, reason)
	}
	s.finish(err)
	s.c.forget(s.id)
}

// connectionEnded ends the stream with its connection.
func (s *Stream) connectionEnded(err error) {
	if err = orderly(err); err == io.EOF {
		err = fmt.Errorf("%w: the connection has ended", transport.ErrReset)
	}
	s.finish(err)
}

func (s *Stream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = err
	}
	s.waiting.wake()
}

// abort ends the stream here and tells the peer why.
func (s *Stream) abort(reason Reason, err error) {
	s.finish(err)
	_ = s.tellClosed(reason)
	s.discard()
}

// tellClosed sends CLOSE, unless the peer has done so.
func (s *Stream) tellClosed(reason Reason) error {
	if s.c.stream(s.id) != s {
		return nil
	}
	s.c.forget(s.id)
	return s.c.w.packet(typeClose, s.id, []byte{byte(reason)}, s.c.done)
}

// discard gives the queue's buffers back.
func (s *Stream) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.queue {
		putBuffer(p.buf)
	}
	s.c.reserve(-s.bytes)
	s.queue, s.bytes = nil, 0
	s.waiting.wake()
}

// CloseWrite does nothing: Wisp has no half-close.
func (s *Stream) CloseWrite() error { return transport.ErrNoHalfClose }

// Close ends the stream in both directions, after what was written.
func (s *Stream) Close() error { return s.shut(ReasonVoluntary) }

// Reset abandons the stream.
func (s *Stream) Reset() error { return s.shut(ReasonNetwork) }

func (s *Stream) shut(reason Reason) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.waiting.wake()
	s.mu.Unlock()
	err := s.tellClosed(reason)
	s.discard()
	return err
}

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	s.readDeadline.set(t)
	s.writeDeadline.set(t)
	return nil
}

// SetReadDeadline bounds Read.
func (s *Stream) SetReadDeadline(t time.Time) error { s.readDeadline.set(t); return nil }

// SetWriteDeadline bounds Write.
func (s *Stream) SetWriteDeadline(t time.Time) error { s.writeDeadline.set(t); return nil }

// A deadline is a channel that is closed when it has passed.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{}
	past  bool
}

// expired is closed when the deadline passes; a new deadline replaces it.
func (d *deadline) expired() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.past || d.ch == nil {
		d.ch, d.past = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	ch := d.ch
	fire := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.ch == ch && !d.past {
			d.past = true
			close(ch)
		}
	}
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, fire)
		return
	}
	d.past = true
	close(ch)
}
