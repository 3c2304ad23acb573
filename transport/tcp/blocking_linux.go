// A connection on blocking system calls of our own, for round trips: Go's poller adds two or three calls and a
// change of goroutine to each wait, and a dozen calls to each connect, which is much of what a transaction on a
// bare socket costs. A thread that waits in the kernel is woken by the kernel alone.

package tcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DialBlocking connects as Dial does, and returns a connection that blocks a thread while it waits: for few
// connections with little between their calls. Reading and writing may go on at once, but Close must not
// overtake them. Options that choose a local address are left to Dial.
func DialBlocking(ctx context.Context, network, address string, o Options) (net.Conn, error) {
	if o.Bind != "" || o.ClientPort != 0 {
		return Dial(ctx, network, address, o)
	}
	remote, to, family, err := resolve(network, address)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := &blocking{fd: fd, remote: remote, network: network}
	if err := c.connect(ctx, to, o); err != nil {
		c.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: remote, Err: err}
	}
	return c, nil
}

// resolve turns a name into what the kernel takes. A host of several addresses is tried at its first only.
func resolve(network, address string) (remote net.Addr, to unix.Sockaddr, family int, err error) {
	if network == "unix" {
		return &net.UnixAddr{Net: network, Name: address}, &unix.SockaddrUnix{Name: address}, unix.AF_UNIX, nil
	}
	addr, err := net.ResolveTCPAddr(network, address)
	if err != nil {
		return nil, nil, 0, err
	}
	ip := addr.AddrPort().Addr().Unmap()
	if ip.Is4() || !ip.IsValid() { // no address is this host's
		four := &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte{127, 0, 0, 1}}
		if ip.IsValid() {
			four.Addr = ip.As4()
		}
		return addr, four, unix.AF_INET, nil
	}
	six := &unix.SockaddrInet6{Port: addr.Port, Addr: ip.As16()}
	if addr.Zone != "" {
		i, err := net.InterfaceByName(addr.Zone)
		if err != nil {
			return nil, nil, 0, err
		}
		six.ZoneId = uint32(i.Index)
	}
	return addr, six, unix.AF_INET6, nil
}

type blocking struct {
	fd      int
	network string
	remote  net.Addr

	mu      sync.Mutex
	closed  bool
	timer   *time.Timer // shuts the socket down: that wakes a thread which waits in it
	expired atomic.Bool
}

// connect sets the options and connects; how long it may wait is the socket's own timeout for sending.
func (c *blocking) connect(ctx context.Context, to unix.Sockaddr, o Options) error {
	network := c.network
	if _, six := to.(*unix.SockaddrInet6); six {
		network = "tcp6"
	}
	if err := o.set(c.fd, network); err != nil {
		return err
	}
	if network != "unix" && !o.Delay {
		if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("setting TCP_NODELAY: %w", err)
		}
	}
	if until, ok := ctx.Deadline(); ok {
		wait := unix.NsecToTimeval(int64(max(time.Until(until), time.Millisecond)))
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
			return fmt.Errorf("setting the connect timeout: %w", err)
		}
		defer func() { _ = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{}) }()
	}
	stop := context.AfterFunc(ctx, c.shutdown)
	defer stop()
	err := unix.Connect(c.fd, to)
	if err == unix.EINTR { // a signal of the runtime: with a timeout set, the kernel does not go on by itself
		err = c.connected(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == unix.EINPROGRESS || err == unix.EAGAIN && c.network != "unix":
		return context.DeadlineExceeded
	}
	return os.NewSyscallError("connect", err)
}

// connected waits for a connect that is under way.
func (c *blocking) connected(ctx context.Context) error {
	for {
		wait := -1
		if until, ok := ctx.Deadline(); ok {
			wait = int(max(0, time.Until(until).Milliseconds()))
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, wait)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.EINPROGRESS
		}
		code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		return err
	}
}

func (c *blocking) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(c.fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case n <= 0 && c.expired.Load():
			return 0, os.ErrDeadlineExceeded
		case err != nil:
			return 0, &net.OpError{Op: "read", Net: c.network, Addr: c.remote, Err: os.NewSyscallError("read", err)}
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (c *blocking) Write(b []byte) (written int, err error) {
	for written < len(b) {
		n, err := unix.SendmsgN(c.fd, b[written:], nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil && c.expired.Load():
			return written, os.ErrDeadlineExceeded
		case err != nil:
			return written, &net.OpError{Op: "write", Net: c.network, Addr: c.remote, Err: os.NewSyscallError("sendmsg", err)}
		}
		written += n
	}
	return written, nil
}

// shutdown wakes whoever waits in the socket.
func (c *blocking) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.expired.Store(true)
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
}

// SetDeadline bounds both directions. A deadline that has passed is final: the socket is of no use after it.
func (c *blocking) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return net.ErrClosed
	case c.timer != nil && t.IsZero():
		c.timer.Stop()
	case c.timer != nil:
		c.timer.Reset(time.Until(t))
	case !t.IsZero():
		c.timer = time.AfterFunc(time.Until(t), c.shutdown)
	}
	return nil
}

// SetReadDeadline bounds both directions.
func (c *blocking) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline bounds both directions.
func (c *blocking) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// CloseWrite sends the end of data.
func (c *blocking) CloseWrite() error { return unix.Shutdown(c.fd, unix.SHUT_WR) }

// SetLinger with 0 makes Close reset the connection.
func (c *blocking) SetLinger(seconds int) error {
	return unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)})
}

func (c *blocking) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	return unix.Close(c.fd)
}

func (c *blocking) RemoteAddr() net.Addr { return c.remote }

func (c *blocking) LocalAddr() net.Addr {
	sa, err := unix.Getsockname(c.fd)
	if err != nil {
		return &net.UnixAddr{Net: c.network}
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *unix.SockaddrInet6:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	}
	return &net.UnixAddr{Net: c.network}
}
