// The epoll engine: one thread waits for events of all connections and moves the bytes itself.
//
// Sockets are non-blocking, so that their calls need not tell Go's scheduler: read and write are raw system
// calls. Only the wait may block, and it is tried without blocking first: in a round trip the next request is
// there before the scheduler could have been told.
//
// A connection that has nothing to say costs 64 bytes or so and no buffer: one buffer serves all. A
// peer that does not take its echo gets a buffer of its own with what is left, and is not read from until
// that is gone.

package testee

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
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
	stalls  int32  // how often it has begun to wait
	pending []byte // echo that the peer has not taken
}

// A waiting connection is one that began to wait for its peer; the log line is due when it still does after
// stallAfter.
type waiting struct {
	c     *connection
	stall int32 // of c.stalls
	since time.Time
}

type epollEngine struct {
	t        *Testee
	ep       int
	listenFD int
	file     *os.File      // keeps listenFD alive: the garbage collector would close it
	wake     [2]int        // a pipe that ends the wait
	conns    []*connection // by descriptor
	waiting  []waiting     // in the order of since
	alone    *connection   // the one that the last events were about, if it was one
	turns    int           // that it has had
	buf      []byte
	letters  []byte
	paused   time.Time // accepting rests until then; zero if it does not
}

func newEpoll(t *Testee) (engine, error) {
	f, err := fileOf(t.listener.Listener)
	if err != nil {
		return nil, err
	}
	e := &epollEngine{t: t, file: f, listenFD: int(f.Fd()), buf: make([]byte, epollBuffer)}
	if t.spec.Mode == Chargen {
		e.letters = letters()
	}
	if err := unix.SetNonblock(e.listenFD, true); err != nil {
		return nil, fmt.Errorf("making the listener non-blocking: %w", err)
	}
	if t.spec.Network != "unix" { // accepted sockets have it from their listener: a call less for each
		if err := unix.SetsockoptInt(e.listenFD, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, fmt.Errorf("setting TCP_NODELAY: %w", err)
		}
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
		if c != nil {
			unix.Close(int(c.fd))
			e.t.c.open.Add(-1)
		}
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
				if c := e.connection(ev.Fd); c != nil {
					e.handle(c, ev.Events)
				}
			}
		}
		if n > 0 {
			e.alone = nil
		}
		if n == 1 && e.t.spec.Mode == Echo {
			e.alone = e.connection(events[0].Fd)
		}
		e.resumeAccept()
		e.noteStalls()
	}
}

// wait returns the events there are. Before it blocks it looks again for a moment: a processor that has gone
// to sleep takes longer to wake up than most peers take to answer. Where one connection alone was served last,
// its socket is asked first: in a round trip that is a call less.
func (e *epollEngine) wait(events []unix.EpollEvent) (int, error) {
	for began := time.Now(); ; {
		if e.alone != nil && !e.alone.stalled && e.read(e.alone) {
			if e.turns++; e.turns%epollBatch == 0 {
				return e.look(events) // the others, and what is due
			}
			began = time.Now()
			continue
		}
		if n, err := e.look(events); n > 0 || err != nil {
			return n, err
		}
		if time.Since(began) > spin {
			break
		}
	}
	for {
		n, err := unix.EpollWait(e.ep, events, e.timeout())
		if err != unix.EINTR {
			return n, err
		}
	}
}

// look returns the events that are there already.
func (e *epollEngine) look(events []unix.EpollEvent) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return 0, errno
	}
	return max(int(n), 0), nil
}

// timeout is how long a wait may last, in milliseconds: until the next thing that is due; -1 if nothing is.
func (e *epollEngine) timeout() int {
	due := e.paused
	if len(e.waiting) > 0 {
		if t := e.waiting[0].since.Add(stallAfter); due.IsZero() || t.Before(due) {
			due = t
		}
	}
	if due.IsZero() {
		return -1
	}
	return int(max(0, time.Until(due).Milliseconds())) + 1
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
	events := uint32(unix.EPOLLIN | unix.EPOLLRDHUP)
	if e.letters != nil {
		events = unix.EPOLLOUT
	}
	if err := e.watch(int(fd), events, unix.EPOLL_CTL_ADD); err != nil {
		unix.Close(int(fd))
		return
	}
	for int(fd) >= len(e.conns) {
		e.conns = append(e.conns, make([]*connection, max(64, len(e.conns)))...)
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
	e.conns[c.fd] = nil
	if e.alone == c {
		e.alone = nil
	}
	c.stalled = false
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

// connection is the one with a descriptor; nil if that is not a connection's, or no more.
func (e *epollEngine) connection(fd int32) *connection {
	if int(fd) >= len(e.conns) {
		return nil
	}
	return e.conns[fd]
}

// read takes what is there, once: a loop would starve the others, and epoll tells again. It reports whether
// bytes were there.
func (e *epollEngine) read(c *connection) bool {
	n, errno := e.receive(c.fd)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return false
	case errno != 0 || n == 0:
		c.ended = true
		if len(c.pending) == 0 {
			e.drop(c) // all that it sent has been echoed
		} else if err := e.watch(int(c.fd), unix.EPOLLOUT, unix.EPOLL_CTL_MOD); err != nil { // an end would be told again and again
			e.drop(c)
		}
		return false
	}
	e.t.c.in.Add(int64(n))
	if e.t.spec.Mode != Discard {
		e.echo(c, e.buf[:n])
	}
	return true
}
