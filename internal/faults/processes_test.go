// What happens to the processes at the ends, and ends that are slow.

//go:build linux

package faults

import (
	"os"
	"syscall"
	"testing"
	"time"
)

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

// after waits, as a user would, and does something.
func after(d time.Duration, do func(*os.Process)) func(*os.Process) {
	return func(p *os.Process) { time.Sleep(d); do(p) }
}

// paused stops a process for a time.
func paused(signal func(syscall.Signal), d time.Duration) {
	signal(syscall.SIGSTOP)
	time.AfterFunc(d, func() { signal(syscall.SIGCONT) })
}

// far is well past the stall timeout of 2 s, after which either end gives up.
const far = 8 * time.Second

// TestStoppedAndKilled: a server that is killed or stopped ends the client with an error in its time, and with what
// it has; a client that is killed, stopped or interrupted is forgotten by the server. The parts come one after the
// other, since a stopped server serves nobody.
func TestStoppedAndKilled(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for way, args := range ways(stack.client("-t", "60", "-i", "0.1")) {
			t.Run(way, func(t *testing.T) {
				args := append(args, s.addr)
				run(t, after(300*time.Millisecond, func(p *os.Process) { _ = p.Kill() }), args...).ended(t, "that was killed", -1)
				inMidRun(t, func(p *os.Process) { _ = p.Signal(os.Interrupt) }, args...).ended(t, "that was interrupted", 130)

				o := inMidRun(t, func(p *os.Process) {
					paused(func(sig syscall.Signal) { _ = p.Signal(sig) }, far)
				}, args...)
				o.failed(t)
				o.ended(t, "that was stopped", failed, stalled)

				o = inMidRun(t, func(*os.Process) { paused(s.signal, far) }, args...)
				o.failed(t)
				o.ended(t, "of a stopped server", failed, stalled)

				other := startServer(t, stack.network, "")
				args[len(args)-1] = other.addr
				o = run(t, after(2*time.Second, func(*os.Process) { other.kill() }), args...)
				o.failed(t)
				o.ended(t, "of a killed server", failed, gone)
			})
		}
	})
}

// TestPaused: an end that stands still for less than the stall timeout costs time and no byte.
func TestPaused(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for way, args := range ways(stack.client("-n", "256M", "--verify", "--rcv-timeout", "60")) {
			t.Run(way, func(t *testing.T) {
				o := run(t, after(200*time.Millisecond, func(p *os.Process) {
					paused(func(sig syscall.Signal) { _ = p.Signal(sig) }, time.Second)
					time.Sleep(200 * time.Millisecond)
					paused(s.signal, time.Second)
				}), append(args, s.addr)...)
				o.ended(t, "that stood still", whole)
				o.carried(t, 256<<20)
			})
		}
	})
}

// TestSlowPeers: a client that is slow, either way, is served for as long as it takes, and holds nobody up.
func TestSlowPeers(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for way, args := range ways(stack.client("-t", "2", "-b", "1M", "-l", "1000")) {
			o := run(t, func(*os.Process) { s.served(stack) }, append(args, s.addr)...)
			o.ended(t, "that was slow "+way, whole)
		}
	})
}
