//go:build unix

// Writing to a target as much as its socket takes at once.

package wisp

import (
	"net"
	"syscall"
)

// trier returns a function that writes what the socket of conn takes without waiting, and says how much that
// was; nil if conn is no socket. It tells no error: who writes the rest meets it again.
func trier(conn net.Conn) func([]byte) int {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) (n int) {
		_ = raw.Write(func(fd uintptr) bool {
			n, _ = syscall.Write(int(fd), b)
			return true // never wait
		})
		return max(n, 0)
	}
}
