// Worker processes: they share a port, each holds its part, what they say is added up, and none outlives its
// parent. This test's own program is what they run.

package testee

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sharded serves in n processes until the test ends.
func sharded(t *testing.T, spec string, cfg Config, n int) *Shards {
	t.Helper()
	s, err := ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := ServeSharded(s, cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	workers := sh.workers
	t.Cleanup(func() {
		sh.Close()
		for _, w := range workers {
			if w.cmd.ProcessState == nil {
				t.Errorf("worker %d has not been waited for", w.cmd.Process.Pid)
			}
		}
	})
	return sh
}

// sockets are the open sockets of a process.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range all {
		if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// TestShardsAndHolders: three processes serve one port, three others hold connections to it, and what is
// reported is the sum.
func TestShardsAndHolders(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		const n, servers = 300, 3
		sh := sharded(t, "127.0.0.1:0", Config{Engine: engine}, servers)
		if len(sh.workers) != servers || sh.Memory() < servers*100_000 {
			t.Errorf("%d workers have %d bytes together", len(sh.workers), sh.Memory())
		}
		var idle [servers]int
		for i, w := range sh.workers {
			idle[i] = sockets(t, w.cmd.Process.Pid)
		}
		p, err := MakePlan(n, reserveFiles+n/3, FromLoopback)
		if err != nil || p.Processes != 3 || p.Sources != 3 {
			t.Fatalf("%+v, %v", p, err)
		}
		o := HoldOptions{Network: "tcp", Address: sh.Address, Batch: 40, Delay: 5 * time.Millisecond, Timeout: patience, Patience: patience}
		h, err := HoldAll(t.Context(), p, o, time.Millisecond, func(h Held) {
			if h.Established != n || h.Echoed != 0 {
				t.Errorf("when all were open: %+v", h)
			}
			taken := 0
			for i, w := range sh.workers {
				pid := w.cmd.Process.Pid
				until(t, "connections in every server", func() bool { return sockets(t, pid) > idle[i] })
				taken += sockets(t, pid) - idle[i]
			}
			if taken > n {
				t.Errorf("%d connections were taken of %d", taken, n)
			}
			port, _ := strconv.Atoi(sh.Address[strings.LastIndex(sh.Address, ":")+1:])
			if m := ListenerMemory(port, 1); m < servers*100_000 {
				t.Errorf("the servers at port %d were found with %.0f bytes", port, m)
			}
		})
		if err != nil || h.Established != n || h.Echoed != n || len(h.Failed) != 0 {
			t.Errorf("%+v, %v", h, err)
		}
		// Each process has three batches, with two pauses.
		if h.Delay != 10*time.Millisecond || h.Time < h.Delay || h.EchoTime <= 0 || h.Connect.Count != n/3 {
			t.Errorf("times and counts: %+v", h)
		}
	})
}

// TestHoldAllAddsUpFailures: causes of several processes are one count.
func TestHoldAllAddsUpFailures(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	p, err := MakePlan(9, reserveFiles+3, FromLoopback)
	if err != nil || p.Processes != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	h, err := HoldAll(t.Context(), p, HoldOptions{Network: "tcp", Address: nobody, Timeout: patience, Patience: patience}, 0, nil)
	if err != nil || h.Established != 0 || h.Echoed != 0 || len(h.Failed) != 1 || h.Failed["connection refused"] != 9 {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestHoldAllIsInterrupted: the reason is what is returned, whatever the workers were doing, and their
// connections are gone.
func TestHoldAllIsInterrupted(t *testing.T) {
	reason := errors.New("enough")
	te := start(t, "127.0.0.1:0", Config{})
	p, err := MakePlan(6, reserveFiles+3, FromLoopback)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*HoldOptions)
		opened bool
	}{
		"opening": {func(o *HoldOptions) { o.Batch, o.Delay = 1, time.Hour }, false},
		"holding": {func(*HoldOptions) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			o := HoldOptions{Network: "tcp", Address: te.Addr().String(), Timeout: patience, Patience: patience}
			tc.change(&o)
			if !tc.opened {
				go func() {
					for te.Stats().Open == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					cancel(reason)
				}()
			}
			_, err := HoldAll(ctx, p, o, time.Hour, func(Held) { cancel(reason) })
			cancel(nil)
			if !errors.Is(err, reason) {
				t.Errorf("it ended with %v", err)
			}
			until(t, "the end of every connection", func() bool { return te.Stats().Open == 0 })
		})
	}
}

// TestAWorkerDies: the others are not waited for in vain, and the error says what happened.
func TestAWorkerDies(t *testing.T) {
	te := start(t, "127.0.0.1:0", Config{})
	p, err := MakePlan(6, reserveFiles+3, FromLoopback)
	if err != nil {
		t.Fatal(err)
	}
	o := HoldOptions{Network: "tcp", Address: te.Addr().String(), Timeout: patience, Patience: patience}
	_, err = HoldAll(t.Context(), p, o, 0, func(Held) {
		pids := childrenOf(t, os.Getpid())
		if len(pids) != p.Processes {
			t.Errorf("%v are the workers, want %d", pids, p.Processes)
		}
		pid, _ := strconv.Atoi(pids[0])
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "a worker ended before its time") {
		t.Errorf("with a dead worker it ended with %v", err)
	}
}

// childrenOf finds the processes that a process has started, by whichever of its threads.
func childrenOf(t *testing.T, pid int) (out []string) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		if b, err := os.ReadFile(file); err == nil {
			out = append(out, strings.Fields(string(b))...)
		}
	}
	return out
}

// TestShardsThatCannotBe: one line, and no process left behind.
func TestShardsThatCannotBe(t *testing.T) {
	te := start(t, "127.0.0.1:0", Config{}) // without SO_REUSEPORT: its port is its own
	for _, tc := range []struct{ spec, want string }{
		{"unix:" + filepath.Join(t.TempDir(), "s"), "cannot be shared"},
		{te.Addr().String(), "address already in use"},
	} {
		s, err := ParseSpec(tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ServeSharded(s, Config{}, 2); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", tc.spec, err, tc.want)
		}
	}
	if left := childrenOf(t, os.Getpid()); len(left) != 0 {
		t.Errorf("processes %v are still there", left)
	}
}

// asWorker is this program as a worker with a job.
func asWorker(t *testing.T, text string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"="+text)
	return cmd
}

// TestWorkersSayWhatIsWrong: in their one line of JSON, and nothing else.
func TestWorkersSayWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ job, want string }{
		{"", "unexpected end of JSON"},
		{"{", "unexpected end of JSON"},
		{`{"Serve":{"Mode":"echo","Network":"tcp","Address":"no.such.host.invalid:1"}}`, "no.such.host.invalid"},
		{`{"Serve":{"Mode":"echo","Network":"tcp","Address":"127.0.0.1:0"},"Engine":"net"}`, ""}, // nothing is wrong
		{`{"Hold":{"Network":"tcp","Address":"nowhere"}}`, "missing port"},
	} {
		cmd := asWorker(t, tc.job)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said word
		err = json.NewDecoder(out).Decode(&said)
		want := "error"
		if tc.want == "" {
			want = "ready"
		}
		if err != nil || said.Event != want || !strings.Contains(said.Error, tc.want) {
			t.Errorf("%q: %+v, %v; want %s with %q", tc.job, said, err, want, tc.want)
		}
		in.Close()
		rest, _ := io.ReadAll(out)
		if err := cmd.Wait(); err != nil || len(bytes.TrimSpace(rest)) != 0 {
			t.Errorf("%q: the worker ended with %v, after %q", tc.job, err, rest)
		}
	}
}

// TestWorkersEndWithTheirParent: the end of their input is enough, whatever they do.
func TestWorkersEndWithTheirParent(t *testing.T) {
	te := start(t, "127.0.0.1:0", Config{})
	jobs := map[string]job{
		"serving": {Serve: &Spec{Mode: Echo, Network: "tcp", Address: "127.0.0.1:0"}},
		"opening": {Hold: &HoldOptions{Network: "tcp", Address: te.Addr().String(), Batch: 1, Delay: time.Hour, Timeout: time.Hour}, Share: Share{Connections: 2}},
		"waiting": {Hold: &HoldOptions{Network: "tcp", Address: te.Addr().String(), Timeout: time.Hour}, Share: Share{Connections: 2}},
	}
	for name, j := range jobs {
		t.Run(name, func(t *testing.T) {
			w, _, err := j.start()
			if err != nil {
				t.Fatal(err)
			}
			if name == "opening" {
				w.tell("open")
				until(t, "the first connection", func() bool { return te.Stats().Open > 0 })
			}
			guard := time.AfterFunc(patience, func() { _ = w.cmd.Process.Kill() })
			defer guard.Stop()
			w.stop()
			if !w.cmd.ProcessState.Success() {
				t.Errorf("the worker ended with %v", w.cmd.ProcessState)
			}
			until(t, "the end of its connections", func() bool { return te.Stats().Open == 0 })
		})
	}
}

func TestFileLimitIsRaised(t *testing.T) {
	limit, err := FileLimit()
	var lim syscall.Rlimit
	if gerr := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil || gerr != nil || uint64(limit) != min(lim.Cur, 1<<30) || lim.Cur != lim.Max {
		t.Errorf("%d is said of %+v, %v, %v", limit, lim, err, gerr)
	}
}
