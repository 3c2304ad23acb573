//go:build linux

package faults

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func stacks() map[string][]string {
	out := map[string][]string{}
	for _, security := range []string{"noise", "plaintext"} {
		for _, mux := range []string{"yamux", "wisp", "none"} {
			out[security+"+"+mux] = []string{"--security", security, "--mux", mux}
		}
	}
	return out
}

// onEach runs a test for every stack, with a server of its own that has to be as before at the end.
func onEach(t *testing.T, test func(t *testing.T, s *server, stack []string)) {
	for name, stack := range stacks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "")
			s.served(stack)
			before := s.files()
			t.Run("faults", func(t *testing.T) { test(t, s, stack) }) // with all its parallel parts
			s.served(stack)
			s.rests(before)
			if text := s.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
				t.Errorf("the server says:\n%s", text)
			}
		})
	}
}

// TestBrokenConnections: every way in which a connection can break, in mid-payload, both ways. Each ends the
// client with an error and in time, also where nothing but --verify can tell: a changed byte of the payload over
// plaintext. A connection without a muxer carries one stream; there the second one has the payload.
func TestBrokenConnections(t *testing.T) {
	strikes := map[string]strike{
		"cut":        {over: true, end: closed},
		"reset":      {over: true, end: reset},
		"half-close": {over: true, end: halfClosed},
		"silence":    {over: true, end: mute},
		"truncated":  {change: truncated, over: true, end: closed},
		"shortened":  {change: truncated},
		"flipped":    {change: flipped},
		"duplicated": {change: duplicated},
		"reordered":  {change: reordered},
		"garbage":    {change: garbage},
	}
	onEach(t, func(t *testing.T, s *server, stack []string) {
		for name, strike := range strikes {
			for _, down := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, down %v", name, down), func(t *testing.T) {
					t.Parallel()
					p := newProxy(t, s.addr)
					p.strike, p.down, p.offset = strike, down, 700_001
					if strings.HasSuffix(strings.Join(stack, " "), "none") {
						p.connection = 1
					}
					args := []string{"-n", "3M", "--verify"}
					if down {
						args = append(args, "-R")
					}
					p.serve()
					o := run(t, nil, append(append(args, stack...), p.addr())...)
					p.close()
					if !p.struck.Load() {
						t.Error("it never came to that")
					}
					o.failed(t)
					noise := stack[1] == "noise"
					if o.code != 1 && o.code != 5 && (o.code != 6 || noise) {
						t.Errorf("code %d: %s; want 1, 5 (stalled) or, without Noise, 6 (the payload is not what was sent)", o.code, o.result.Error)
					}
				})
			}
		}
	})
}

// TestCutAnywhere: the connection is cut at every 1,000th byte of a session, either way; the client ends with an
// error or, where everything had been said, whole.
func TestCutAnywhere(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack []string) {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprintf("down %v", down), func(t *testing.T) {
				t.Parallel()
				for offset := 0; ; offset += 1000 {
					p := newProxy(t, s.addr)
					p.strike, p.down, p.offset = strike{over: true, end: closed}, down, offset
					p.serve()
					args := []string{"-n", "20000"}
					if down {
						args = append(args, "-R")
					}
					o := run(t, nil, append(append(args, stack...), p.addr())...)
					p.close()
					if !p.struck.Load() {
						if o.code != 0 {
							t.Errorf("nothing was cut, and it ended with %d: %s", o.code, o.stderr)
						}
						break
					}
					if o.code != 0 {
						o.failed(t)
					}
					for _, d := range o.result.Directions {
						if o.code == 0 && (d.Receiver == nil || d.Receiver.Bytes != 20000) {
							t.Errorf("cut at byte %d: code 0, and %+v", offset, d.Receiver)
						}
					}
				}
			})
		}
	})
}

// after waits, as a user would, and does something.
func after(d time.Duration, do func(*os.Process)) func(*os.Process) {
	return func(p *os.Process) { time.Sleep(d); do(p) }
}

// inMidRun runs a client and does something when its payload flows, which a busy machine puts off: it waits longer
// until there is a partial result.
func inMidRun(t *testing.T, do func(*os.Process), args ...string) (o outcome) {
	t.Helper()
	for wait := time.Second; wait <= 16*time.Second; wait *= 4 {
		if o = run(t, after(wait, do), args...); len(o.result.Directions) > 0 {
			return o
		}
	}
	t.Errorf("no partial result; it ended with %d: %s", o.code, o.stderr)
	return o
}

// TestStoppedAndKilled: what happens to the processes. A server that is killed or stopped ends the client with an
// error in its time, and with what it has; a client that is killed or interrupted is forgotten by the server.
func TestStoppedAndKilled(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack []string) {
		long := append([]string{"-t", "60", "-i", "0.1"}, stack...)
		for _, reverse := range []bool{false, true} {
			args := append(long, s.addr)
			if reverse {
				args = append([]string{"-R"}, args...)
			}
			if o := run(t, after(300*time.Millisecond, func(p *os.Process) { _ = p.Kill() }), args...); o.code != -1 {
				t.Errorf("a killed client ended with %d", o.code)
			}
			if o := inMidRun(t, func(p *os.Process) { _ = p.Signal(os.Interrupt) }, args...); o.code != 130 {
				t.Errorf("an interrupted client ended with %d", o.code)
			}
			o := inMidRun(t, func(*os.Process) {
				s.signal(syscall.SIGSTOP)
				time.AfterFunc(8*time.Second, func() { s.signal(syscall.SIGCONT) }) // long after the stall timeout
			}, args...)
			o.failed(t)
		}
		other := startServer(t, "")
		o := run(t, after(2*time.Second, func(*os.Process) { other.kill() }), append(long, other.addr)...)
		o.failed(t)
	})
}

// TestSlowPeers: a client that is slow, either way, is served for as long as it takes, and holds nobody up.
func TestSlowPeers(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack []string) {
		slow := append([]string{"-t", "2", "-b", "1M", "-l", "1000"}, stack...)
		for _, reverse := range []bool{false, true} {
			args := append(slow, s.addr)
			if reverse {
				args = append([]string{"-R"}, args...)
			}
			o := run(t, func(*os.Process) { s.served(stack) }, args...)
			if o.code != 0 {
				t.Errorf("reverse %v: it ended with %d: %s", reverse, o.code, o.stderr)
			}
		}
	})
}

// TestLimitsOfTheSystem: a server with few descriptors, and one with little memory, refuse some and serve others;
// neither ends.
func TestLimitsOfTheSystem(t *testing.T) {
	t.Run("descriptors", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, "ulimit -n 40;")
		stack := stacks()["noise+yamux"]
		o := run(t, nil, append(append([]string{"--connections", "60", "-n", "1M"}, stack...), s.addr)...)
		o.failed(t)
		s.served(stack)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, "export GOMEMLIMIT=32MiB;", "--max-buffered", "8M")
		for _, stack := range stacks() {
			o := run(t, nil, append(append([]string{"-P", "64", "-n", "64M", "--verify"}, stack...), s.addr)...)
			if o.code != 0 {
				t.Errorf("%v: it ended with %d: %s", stack, o.code, o.stderr)
			}
			s.served(stack)
		}
	})
}

// TestStrangers: what speaks no protocol of ours leaves nothing behind, and is not logged line by line.
func TestStrangers(t *testing.T) {
	s := startServer(t, "")
	stack := stacks()["noise+yamux"]
	s.served(stack)
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
	s.served(stack)
	s.rests(before)
	if lines := strings.Count(s.log.String(), "\n"); lines > 20 {
		t.Errorf("%d lines are logged of 120 strangers:\n%s", lines, s.log)
	}
}
