// The memory of the other end, where it is on this machine: the processes that hold a listening socket on a
// port are found by the socket's inode.

package testee

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ListenerMemory is the resident memory of the processes of this machine that listen on a TCP port, in bytes
// for each of n connections; 0 if there are none, or they cannot be seen. What the program itself needs is in
// it: with many connections it does not count.
func ListenerMemory(port, n int) float64 {
	inodes := listeningInodes(port)
	if len(inodes) == 0 || n == 0 {
		return 0
	}
	var sum int64
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range pids {
		if holdsAny(dir, inodes) {
			sum += residentSet(filepath.Base(dir))
		}
	}
	return float64(sum) / float64(n)
}

// listeningInodes are the sockets in state LISTEN (0A) on a port, from the kernel's tables.
func listeningInodes(port int) map[string]bool {
	out := map[string]bool{}
	suffix := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if fields := strings.Fields(s.Text()); len(fields) > 9 && fields[3] == "0A" && strings.HasSuffix(fields[1], suffix) {
				out["socket:["+fields[9]+"]"] = true
			}
		}
		f.Close()
	}
	return out
}

// holdsAny looks at a process's first descriptors: a listener is among them.
func holdsAny(dir string, inodes map[string]bool) bool {
	for fd := range 64 {
		if target, err := os.Readlink(fmt.Sprintf("%s/fd/%d", dir, fd)); err == nil && inodes[target] {
			return true
		}
	}
	return false
}
