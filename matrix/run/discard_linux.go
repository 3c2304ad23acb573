// Linux: what a target discards stays in the kernel. The target takes part in every Wisp cell, and on a machine
// whose processors client, server and target share, each byte that it copies is time that they do not have.

package run

import (
	"io"
	"net"
	"syscall"
)

// discarding returns a Read that leaves its buffer as it is: with MSG_TRUNC TCP drops the bytes and says how
// many they were (tcp(7)).
func discarding(conn net.Conn) func([]byte) (int, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return conn.Read
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return conn.Read
	}
	return func(b []byte) (n int, err error) {
		waited := raw.Read(func(fd uintptr) bool {
			n, _, err = syscall.Recvfrom(int(fd), b, syscall.MSG_TRUNC)
			return err != syscall.EAGAIN
		})
		switch {
		case waited != nil:
			return 0, waited
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
