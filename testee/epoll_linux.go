// The epoll engine: one thread waits for events of all connections and moves the bytes itself.
//
// Sockets are non-blocking, so that their calls need not tell Go's scheduler: read and write are raw system
// calls. Only the wait may block, and it is tried without blocking first: in a round trip the next request is
// there before the scheduler could have been told.
//
// A connection that has nothing to say costs an entry of 48 bytes and no buffer: one buffer serves all. A
// peer that does not take its echo gets a buffer of its own with what is left, and is not read from until
// that is gone.

package testee

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func newEngine(t *Testee) (engine, error) {
	if t.cfg.Engine == EngineNet {
		return newNetEngine(t), nil
	}
	return newEpoll(t)
}

const (
	epollBuffer = 256 << 10
	epollBatch  = 512 // events of one wait
	acceptBatch = 64  // connections accepted before others are served again
	spin        = 40 * time.Microsecond
)

// A connection is what is kept of one.
type connection struct {
	fd      int32
	ended   bool   // the peer has sent its end of data
	stalled bool   // waits for the peer to read
	noted   bool   // that it does not read has been said
	pending []byte // echo that the peer has not taken
}

type epollEngine struct {
	t        *Testee
	ep       int
	listenFD int
	file     *os.File // keeps listenFD alive: the garbage collector would close it
	wake     [2]int   // a pipe that ends the wait
	conns    map[int32]*connection
	buf      []byte
	letters  []byte
	paused   time.Time // accepting rests until then; zero if it does not
}

func newEpoll(t *Testee) (engine, error) {
	f, err := fileOf(t.listener.Listener)
	if err != nil {
		return nil, err
	}
	e := &epollEngine{t: t, file: f, listenFD: int(f.Fd()), conns: map[int32]*connection{}, buf: make([]byte, epollBuffer)}
	if t.spec.Mode == Chargen {
		e.letters = letters()
	}
	if err := unix.SetNonblock(e.listenFD, true); err != nil {
		return nil, fmt.Errorf("making the listener non-blocking: %w", err)
	}
	if e.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("creating an epoll instance: %w", err)
	}
	if err := unix.Pipe2(e.wake[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("creating a pipe: %w", err)
	}
	for _, fd := range []int{e.listenFD, e.wake[0]} {
		if err := e.watch(fd, unix.EPOLLIN, unix.EPOLL_CTL_ADD); err != nil {
			return nil, fmt.Errorf("watching a socket: %w", err)
		}
	}
	return e, nil
}

// fileOf duplicates a listener's descriptor.
func fileOf(l net.Listener) (*os.File, error) {
	d, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", l)
	}
	return d.File()
}

func (e *epollEngine) watch(fd int, events uint32, op int) error {
	return unix.EpollCtl(e.ep, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// serve runs the loop on a thread of its own.
func (e *epollEngine) serve(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(e.wake[1], []byte{1})
		close(woken)
	})
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- e.loop(ctx)
	}()
	err := <-done
	if !stop() {
		<-woken // the pipe must not be closed, and its number not be another file's, before that
	}
	e.close()
	return err
}

// close gives everything back.
func (e *epollEngine) close() {
	for _, c := range e.conns {
		unix.Close(int(c.fd))
		e.t.c.open.Add(-1)
	}
	e.conns = nil
	unix.Close(e.ep)
	unix.Close(e.wake[0])
	unix.Close(e.wake[1])
	e.file.Close()
	e.t.listener.Close() // removes a Unix socket's file
}

// loop waits and serves until ctx is done.
func (e *epollEngine) loop(ctx context.Context) error {
	events := make([]unix.EpollEvent, epollBatch)
	for {
		n, err := e.wait(events)
		if err != nil {
			return fmt.Errorf("waiting for events: %w", err)
		}
		for _, ev := range events[:n] {
			switch int(ev.Fd) {
			case e.listenFD:
				if err := e.accept(); err != nil {
					return err
				}
			case e.wake[0]:
				if ctx.Err() != nil {
					return nil
				}
			default:
				if c := e.conns[ev.Fd]; c != nil {
					e.handle(c, ev.Events)
				}
			}
		}
		e.resumeAccept()
	}
}

// wait returns the events there are. Before it blocks it looks again for a moment: a processor that has gone
// to sleep takes longer to wake up than most peers take to answer.
func (e *epollEngine) wait(events []unix.EpollEvent) (int, error) {
	for began := time.Now(); ; {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if errno == 0 && n > 0 {
			return int(n), nil
		}
		if time.Since(began) > spin {
			break
		}
	}
	timeout := -1
	if !e.paused.IsZero() {
		timeout = int(max(1, time.Until(e.paused).Milliseconds()))
	}
	for {
		n, err := unix.EpollWait(e.ep, events, timeout)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// accept takes some of the connections that wait.
func (e *epollEngine) accept() error {
	for range acceptBatch {
		fd, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(e.listenFD), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			e.add(int32(fd))
		case unix.EAGAIN:
			return nil
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			e.t.cfg.Log.Warn("cannot accept for the moment", "testee", e.t.spec.String(), "error", errno)
			e.paused = time.Now().Add(pauseAccept)
			return e.watch(e.listenFD, 0, unix.EPOLL_CTL_MOD)
		case unix.ECONNABORTED, unix.EINTR, unix.EPROTO, unix.EPERM, unix.ENETDOWN, unix.EHOSTUNREACH, unix.ENETUNREACH:
		default:
			return fmt.Errorf("accepting connections: %w", errno)
		}
	}
	return nil
}

// resumeAccept ends the rest that a full descriptor table made necessary.
func (e *epollEngine) resumeAccept() {
	if !e.paused.IsZero() && !time.Now().Before(e.paused) {
		e.paused = time.Time{}
		_ = e.watch(e.listenFD, unix.EPOLLIN, unix.EPOLL_CTL_MOD)
	}
}

func (e *epollEngine) add(fd int32) {
	if e.t.spec.Network != "unix" {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	events := uint32(unix.EPOLLIN | unix.EPOLLRDHUP)
	if e.letters != nil {
		events = unix.EPOLLOUT
	}
	if err := e.watch(int(fd), events, unix.EPOLL_CTL_ADD); err != nil {
		unix.Close(int(fd))
		return
	}
	e.conns[fd] = &connection{fd: fd}
	e.t.c.accepted.Add(1)
	e.t.c.open.Add(1)
	if e.t.spec.Debug {
		e.t.debug("connected", peerName(int(fd)))
	}
}

func (e *epollEngine) drop(c *connection) {
	if e.t.spec.Debug {
		e.t.debug("disconnected", peerName(int(c.fd)))
	}
	unix.Close(int(c.fd)) // and out of the epoll set with it
	delete(e.conns, c.fd)
	e.t.c.open.Add(-1)
}

// handle serves one event.
func (e *epollEngine) handle(c *connection, events uint32) {
	switch {
	case events&unix.EPOLLERR != 0:
		e.drop(c)
	case e.letters != nil:
		e.generate(c)
	case c.stalled && events&(unix.EPOLLOUT|unix.EPOLLHUP) != 0:
		e.flush(c)
	default:
		e.read(c)
	}
}

// read takes what is there, once: a loop would starve the others, and epoll tells again.
func (e *epollEngine) read(c *connection) {
	n, errno := rawRead(c.fd, e.buf)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0 || n == 0:
		c.ended = true
		if len(c.pending) == 0 {
			e.drop(c) // all that it sent has been echoed
		} else if err := e.watch(int(c.fd), unix.EPOLLOUT, unix.EPOLL_CTL_MOD); err != nil { // an end would be told again and again
			e.drop(c)
		}
		return
	}
	e.t.c.in.Add(int64(n))
	if e.t.spec.Mode == Discard {
		return
	}
	e.echo(c, e.buf[:n])
}

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
	if !c.noted {
		c.noted = true
		e.t.stalled(peerName(int(c.fd)))
	}
	if err := e.watch(int(c.fd), events, unix.EPOLL_CTL_MOD); err != nil {
		e.drop(c)
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

// rawRead reads without telling the scheduler: the socket is non-blocking.
func rawRead(fd int32, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// rawWrite writes likewise. MSG_NOSIGNAL spares us SIGPIPE.
func rawWrite(fd int32, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// peerName is the address at the other end, for logs.
func peerName(fd int) string {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return "unknown"
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return net.JoinHostPort(net.IP(a.Addr[:]).String(), strconv.Itoa(a.Port))
	case *unix.SockaddrInet6:
		return net.JoinHostPort(net.IP(a.Addr[:]).String(), strconv.Itoa(a.Port))
	}
	return "unix"
}
