// Holding connections: one process's part. Everything happens in one loop on epoll: connects are started
// without waiting, batch by batch, and finish when the kernel says so.

package testee

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"muxperf/measure"
)

// HoldOptions say how connections are opened.
type HoldOptions struct {
	Network, Address string
	Batch            int           // connects started at once; 0 means all
	Delay            time.Duration // after each batch
	Timeout          time.Duration // for all to be established
	Patience         time.Duration // for the echoes
}

// A Holder holds one share of the connections.
type Holder struct {
	o       HoldOptions
	ep      int
	target  unix.Sockaddr
	family  int
	open    []int32 // established
	pending map[int32]time.Time
	// turnedAway found a Unix socket's backlog full. TCP's connects wait for room by themselves; these have to be
	// tried again.
	turnedAway []attempt
	Connect    *measure.Histogram
	Failed     map[string]int // by cause
	Delayed    time.Duration
}

// An attempt is a connect that has to be made again.
type attempt struct {
	fd    int
	began time.Time
}

// NewHolder prepares a share.
func NewHolder(o HoldOptions) (*Holder, error) {
	h := &Holder{o: o, pending: map[int32]time.Time{}, Connect: measure.NewHistogram(), Failed: map[string]int{}}
	var err error
	if o.Network == "unix" {
		h.family, h.target = unix.AF_UNIX, &unix.SockaddrUnix{Name: o.Address}
	} else {
		addr, err := net.ResolveTCPAddr(o.Network, o.Address)
		if err != nil {
			return nil, err
		}
		ip := addr.AddrPort().Addr().Unmap()
		if h.family = unix.AF_INET6; ip.Is4() {
			h.family = unix.AF_INET
			h.target = &unix.SockaddrInet4{Port: addr.Port, Addr: ip.As4()}
		} else {
			h.target = &unix.SockaddrInet6{Port: addr.Port, Addr: ip.As16()}
		}
	}
	if h.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("creating an epoll instance: %w", err)
	}
	return h, nil
}

// Open opens the share's connections and waits until each is established or has failed.
func (h *Holder) Open(ctx context.Context, s Share) error {
	deadline := time.Now().Add(h.o.Timeout)
	batch := h.o.Batch
	if batch <= 0 {
		batch = s.Connections
	}
	for started := 0; started < s.Connections; {
		end := min(s.Connections, started+batch)
		for ; started < end; started++ {
			h.start(s, started)
			if started%256 == 255 {
				if err := h.poll(0); err != nil {
					return err
				}
			}
		}
		if err := h.pauseBatch(ctx, started < s.Connections); err != nil {
			return err
		}
	}
	for len(h.pending)+len(h.turnedAway) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Now().After(deadline) {
			h.giveUp()
			return nil
		}
		if err := h.poll(h.retry()); err != nil {
			return err
		}
	}
	return nil
}

// retry tries again, in order, until one is turned away again, and returns how many milliseconds to wait then.
func (h *Holder) retry() int {
	for len(h.turnedAway) > 0 {
		a := h.turnedAway[0]
		switch err := unix.Connect(a.fd, h.target); err {
		case nil:
			h.established(int32(a.fd), a.began)
		case unix.EAGAIN:
			return 1
		default:
			unix.Close(a.fd)
			h.fail(err)
		}
		h.turnedAway = h.turnedAway[1:]
	}
	if len(h.pending) == 0 {
		return 0
	}
	return 20
}

// pauseBatch spends the delay after a batch with what finishes meanwhile.
func (h *Holder) pauseBatch(ctx context.Context, more bool) error {
	until := time.Now().Add(h.o.Delay)
	for more && time.Now().Before(until) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h.retry()
		if err := h.poll(int(max(1, min(20, time.Until(until).Milliseconds())))); err != nil {
			return err
		}
	}
	if more {
		h.Delayed += h.o.Delay
	}
	return nil
}

// start begins one connect.
func (h *Holder) start(s Share, i int) {
	fd, err := unix.Socket(h.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		h.fail(err)
		return
	}
	if len(s.Sources) > 0 && h.family == unix.AF_INET {
		if err := bindTo(fd, s.Sources[i%len(s.Sources)]); err != nil {
			unix.Close(fd)
			h.fail(err)
			return
		}
	}
	began := time.Now()
	switch err := unix.Connect(fd, h.target); err {
	case nil:
		h.established(int32(fd), began)
	case unix.EAGAIN: // a Unix socket whose accept backlog is full: nothing is under way
		h.turnedAway = append(h.turnedAway, attempt{fd, began})
	case unix.EINPROGRESS:
		h.wait(fd, began)
	default:
		unix.Close(fd)
		h.fail(err)
	}
}

// wait has a connect that is under way watched; on loopback it is usually over by now.
func (h *Holder) wait(fd int, began time.Time) {
	if _, err := unix.Getpeername(fd); err == nil {
		h.established(int32(fd), began)
		return
	}
	h.pending[int32(fd)] = began
	if err := unix.EpollCtl(h.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(fd)}); err != nil {
		delete(h.pending, int32(fd))
		unix.Close(fd)
		h.fail(err)
	}
}

// bindTo chooses the source address, and leaves the port until the target is known: only then can ports be
// used again for other targets.
func bindTo(fd int, source netip.Addr) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: source.As4()})
}

// poll takes the connects that have finished.
func (h *Holder) poll(ms int) error {
	var events [512]unix.EpollEvent
	n, err := unix.EpollWait(h.ep, events[:], ms)
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting for connections: %w", err)
	}
	for _, ev := range events[:n] {
		began, waiting := h.pending[ev.Fd]
		if !waiting {
			continue
		}
		delete(h.pending, ev.Fd)
		_ = unix.EpollCtl(h.ep, unix.EPOLL_CTL_DEL, int(ev.Fd), nil)
		code, err := unix.GetsockoptInt(int(ev.Fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			unix.Close(int(ev.Fd))
			h.fail(err)
			continue
		}
		h.established(ev.Fd, began)
	}
	return nil
}

func (h *Holder) established(fd int32, began time.Time) {
	h.Connect.Record(time.Since(began))
	h.open = append(h.open, fd)
}

// fail counts a failure by its cause, in the words of the system.
func (h *Holder) fail(err error) {
	h.Failed[err.Error()]++
}

// giveUp counts what is still pending.
func (h *Holder) giveUp() {
	for fd := range h.pending {
		unix.Close(int(fd))
		h.fail(errors.New("no answer in time"))
	}
	clear(h.pending)
	for _, a := range h.turnedAway {
		unix.Close(a.fd)
		h.fail(errors.New("the accept backlog is full"))
	}
	h.turnedAway = nil
}

// Established is how many are held.
func (h *Holder) Established() int { return len(h.open) }

// Echo sends one byte on each connection and waits for it to come back, a window of them at a time. It
// returns how many did.
func (h *Holder) Echo(ctx context.Context, timeout time.Duration) int {
	const window = 2048
	echoed := 0
	deadline := time.Now().Add(timeout)
	for at := 0; at < len(h.open) && ctx.Err() == nil; at += window {
		part := h.open[at:min(at+window, len(h.open))]
		var asked []int32
		for i, fd := range part {
			if n, errno := rawWrite(fd, []byte{byte(i)}); errno != 0 || n != 1 {
				continue
			}
			if unix.EpollCtl(h.ep, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: fd}) == nil {
				asked = append(asked, fd)
			}
		}
		echoed += h.collect(ctx, asked, deadline)
	}
	return echoed
}

// collect reads the answers of a window.
func (h *Holder) collect(ctx context.Context, part []int32, deadline time.Time) int {
	left, echoed := len(part), 0
	var events [512]unix.EpollEvent
	var b [1]byte
	for left > 0 && time.Now().Before(deadline) && ctx.Err() == nil {
		n, err := unix.EpollWait(h.ep, events[:], 100)
		if err != nil && err != unix.EINTR {
			break
		}
		for _, ev := range events[:max(0, n)] {
			if got, _ := rawRead(ev.Fd, b[:]); got == 1 {
				echoed++
			}
			left--
			_ = unix.EpollCtl(h.ep, unix.EPOLL_CTL_DEL, int(ev.Fd), nil)
		}
	}
	for _, fd := range part {
		_ = unix.EpollCtl(h.ep, unix.EPOLL_CTL_DEL, int(fd), nil)
	}
	return echoed
}

// Close closes everything, also what an interrupted Open has left under way. The ports of connections to loopback
// are free at once: a reset leaves no TIME_WAIT.
func (h *Holder) Close() {
	for _, fd := range h.open {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		unix.Close(int(fd))
	}
	h.open = nil
	h.giveUp()
	unix.Close(h.ep)
	h.ep = -1 // closing again must not close what has the number by then
}
