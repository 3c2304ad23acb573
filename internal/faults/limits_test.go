// What the operating system does to a server, and strangers.

//go:build linux

package faults

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// plain is the stack of those tests that are not about one.
func plain() stack { return stack{network: "tcp", noise: true, mux: "yamux"} }

// TestFewDescriptors: a server with few descriptors refuses some clients and serves others.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := startServer(t, "tcp", "ulimit -n 40;")
	o := run(t, nil, append(plain().client("--connections", "60", "-n", "1M"), s.addr)...)
	o.failed(t)
	s.served(plain())
}

// TestLittleMemory: a server with little memory takes more time and loses nothing, whether the limit is its own or
// the system's, which kills what asks for more: 2 GB of addresses, since the runtime asks for some that it never uses.
func TestLittleMemory(t *testing.T) {
	for name, limit := range map[string]string{"GOMEMLIMIT": "export GOMEMLIMIT=32MiB;", "ulimit": "ulimit -v 2000000;"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "tcp", limit, "--max-buffered", "8M")
			for _, stack := range stacks() {
				if stack.network != "tcp" {
					continue
				}
				o := run(t, nil, append(stack.client("-P", "64", "-n", "64M", "--verify"), s.addr)...)
				if o.code != 0 {
					t.Errorf("%s: it ended with %d: %s", stack.name(), o.code, o.stderr)
				}
				s.served(stack)
			}
		})
	}
}

// TestStrangers: what speaks no protocol of ours leaves nothing behind, and is not logged line by line.
func TestStrangers(t *testing.T) {
	s := startServer(t, "tcp", "")
	s.served(plain())
	before := s.files()
	for i, hello := range []string{"", "\x00", "GET / HTTP/1.1\r\n\r\n", "\x13/multistream/1.0.0\n", "\x16\x03\x01\x02\x00", strings.Repeat("A", 100_000)} {
		for range 20 {
			conn, err := net.Dial("tcp4", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprint(conn, hello)
			if i%2 == 0 {
				conn.Close()
			}
			defer conn.Close()
		}
	}
	s.served(plain())
	s.rests(before)
	if lines := strings.Count(s.log.String(), "\n"); lines > 20 {
		t.Errorf("%d lines are logged of 120 strangers:\n%s", lines, s.log)
	}
}
