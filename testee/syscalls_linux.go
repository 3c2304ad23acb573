// System calls on non-blocking sockets, past Go's poller and scheduler.

package testee

import (
	"net"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive reads into the buffer. What is to be discarded need not be copied: with MSG_TRUNC TCP drops the bytes
// in the kernel and says how many they were (tcp(7)).
func (e *epollEngine) receive(fd int32) (int, syscall.Errno) {
	if e.t.spec.Mode != Discard || e.t.spec.Network == "unix" {
		return rawRead(fd, e.buf)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(e.buf))), uintptr(len(e.buf)), unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
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
