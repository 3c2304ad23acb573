// A wall clock that is set while programs run: by a person, by a daemon that corrects it, by a virtual machine that
// wakes up. The clock of the machine is not a test's to set, so the programs are built with one that jumps.

//go:build linux

package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxperf/internal/programs"
)

// TestClockStepped: a wall clock that jumps an hour forth and back three times a second changes no duration, no
// interval, no latency and no time limit.
func TestClockStepped(t *testing.T) {
	t.Parallel()
	dir := stepped(t)
	client := filepath.Join(dir, "client")
	for _, stack := range stacks() {
		t.Run(stack.name(), func(t *testing.T) {
			t.Parallel()
			s := startProgram(t, filepath.Join(dir, "server"), stack.network, "")
			o := runProgram(t, client, nil, append(stack.client("-t", "2", "-i", "0.25", "--rcv-timeout", "60"), s.addr)...)
			o.ended(t, "with a clock that jumps", whole)
			o.flowedFor(t, 2*time.Second)
			if ahead := time.Until(o.result.Started); ahead < 45*time.Minute {
				t.Errorf("the clock did not jump: the run began at %v", o.result.Started)
			}

			o = runProgram(t, client, nil, append(stack.client("--test", "rr", "-t", "2", "--rcv-timeout", "60"), s.addr)...)
			o.ended(t, "with a clock that jumps", whole)
			if l := o.result.Latency; l == nil || l.Corrected.Min <= 0 || l.Corrected.Max > patience || l.Window > patience {
				t.Errorf("latencies with a clock that jumps: %+v", l)
			}

			o = runProgram(t, client, after(time.Second, func(*os.Process) { s.kill() }), append(stack.client("-t", "60"), s.addr)...)
			o.failed(t)
		})
	}
}

// flowedFor judges the window and the intervals of a run's one direction.
func (o outcome) flowedFor(t *testing.T, d time.Duration) {
	t.Helper()
	if len(o.result.Directions) != 1 || o.result.Directions[0].Receiver == nil {
		t.Errorf("no receiver's figures: %s", o.stderr)
		return
	}
	side := o.result.Directions[0].Receiver
	if side.Window < d/2 || side.Window > patience {
		t.Errorf("a window of %v, not of about %v", side.Window, d)
	}
	var at time.Duration
	for _, i := range side.Intervals {
		if i.Start != at || i.End <= i.Start || i.End > patience {
			t.Errorf("an interval from %v to %v, after one to %v", i.Start, i.End, at)
		}
		at = i.End
	}
	if at == 0 {
		t.Error("no intervals")
	}
}

// stepped builds the programs with a standard library whose wall clock is one hour ahead, or two, three times a
// second; the monotonic clock is as ever.
func stepped(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	const jumps = now + "\tsec += 3600 * (1 + mono/333333333%2)\n"
	head, tail, found := strings.Cut(string(source), now)
	if !found {
		t.Fatalf("%s is not as this test knows it", original)
	}
	scratch := t.TempDir()
	replaced, overlay := filepath.Join(scratch, "time.go"), filepath.Join(scratch, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{replaced: []byte(head + jumps + tail), overlay: list} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := programs.BuildWith("-overlay", overlay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
