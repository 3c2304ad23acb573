// The epoll engine's writing: echo, what waits for a peer that does not read, and chargen.

package testee

import (
	"time"

	"golang.org/x/sys/unix"
)

// echo writes b, after what still waits. What the peer does not take waits in a buffer of its own.
func (e *epollEngine) echo(c *connection, b []byte) {
	if len(c.pending) == 0 {
		sent, errno := rawWrite(c.fd, b)
		if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
			e.drop(c)
			return
		}
		e.t.c.out.Add(int64(sent))
		if b = b[sent:]; len(b) == 0 {
			return
		}
	}
	if e.t.cfg.OnStall == StallDrop {
		room := max(0, e.t.cfg.StallCap-len(c.pending))
		e.t.c.dropped.Add(int64(max(0, len(b)-room)))
		b = b[:min(len(b), room)]
	}
	c.pending = append(c.pending, b...)
	e.stall(c)
}

// stall waits for room at the peer. Reading goes on only where the excess is dropped.
func (e *epollEngine) stall(c *connection) {
	if c.stalled {
		return
	}
	c.stalled = true
	events := uint32(unix.EPOLLOUT)
	if e.t.cfg.OnStall == StallDrop {
		events |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if c.stalls++; !c.noted {
		e.waiting = append(e.waiting, waiting{c, c.stalls, time.Now()})
	}
	if err := e.watch(int(c.fd), events, unix.EPOLL_CTL_MOD); err != nil {
		e.drop(c)
	}
}

// noteStalls says which peers have not read for stallAfter, once for each connection.
func (e *epollEngine) noteStalls() {
	for len(e.waiting) > 0 {
		w := e.waiting[0]
		still := w.c.stalled && w.c.stalls == w.stall && !w.c.noted
		if still && time.Since(w.since) < stallAfter {
			return
		}
		if still {
			w.c.noted = true
			e.t.stalled(peerName(int(w.c.fd)))
		}
		if e.waiting = e.waiting[1:]; len(e.waiting) == 0 {
			e.waiting = nil
		}
	}
}

// flush goes on with what waits; when it is gone, reading goes on too.
func (e *epollEngine) flush(c *connection) {
	sent, errno := rawWrite(c.fd, c.pending)
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		e.drop(c)
		return
	}
	e.t.c.out.Add(int64(sent))
	if c.pending = c.pending[sent:]; len(c.pending) > 0 {
		return
	}
	c.pending, c.stalled = nil, false
	if c.ended {
		e.drop(c)
		return
	}
	if err := e.watch(int(c.fd), unix.EPOLLIN|unix.EPOLLRDHUP, unix.EPOLL_CTL_MOD); err != nil {
		e.drop(c)
	}
}

// generate sends more, as far as the peer takes it.
func (e *epollEngine) generate(c *connection) {
	n, errno := rawWrite(c.fd, e.letters)
	e.t.c.out.Add(int64(n))
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		e.drop(c)
	}
}
