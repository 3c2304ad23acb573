// The command as people and scripts use it: its exit codes, its one-line errors, and what is left when it is
// killed. The peers are small programs of the shell.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muxperf/matrix/cell"
	"muxperf/matrix/process"
)

// The test binary is the command itself, and its supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == process.Supervise {
		os.Exit(process.RunSupervisor(os.Args[2]))
	}
	if os.Getenv("MATRIX_TEST_COMMAND") != "" {
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// peers makes a folder with one peer, whose client does what the line of shell says.
func peers(t *testing.T, client string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "fake"), 0o755); err != nil {
		t.Fatal(err)
	}
	yaml := `name: fake
kind: libp2p
stacks: [noise+yamux]
server:
  command: |
    echo '{"event":"ready","address":"127.0.0.1:{port}"}'; echo '{"event":"result","role":"server","received_bytes":125000000,"seconds":1}'; exec sleep 300
  ready: json
client:
  command: |
    ` + client + "\n"
	if err := os.WriteFile(filepath.Join(dir, "fake", "peer.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

const good = `echo '{"event":"result","role":"client","protocol":"/perf/1.0.0","sent_bytes":125000000,"seconds":1}'`

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	short := []string{"-t", "1", "--reps", "1", "--no-noise", "--out", t.TempDir()}
	with := func(args ...string) []string { return append(args, short...) }
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"a good run", with("--peers", peers(t, good)), 0, "1.00", ""},
		{"a cell that fails", with("--peers", peers(t, "echo no such luck >&2; exit 1")), 1, "no such luck", "1 of 1 cells failed"},
		{"a list", []string{"--peers", peers(t, good), "--list"}, 0, "fake to fake", ""},
		{"an unknown flag", []string{"--nonsense"}, 2, "", "--nonsense"},
		{"an unknown stack", []string{"--peers", peers(t, good), "--stack", "tls+yamux"}, 2, "", "want some of"},
		{"no such folder", []string{"--peers", "/nowhere"}, 2, "", "peer.yaml"},
		{"no cell", with("--peers", peers(t, good), "--only", "other"), 2, "", "no cell is left"},
		{"an unknown form", []string{"--output", "x.pdf"}, 2, "", ".html"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := command(tc.args...)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("code %d, want %d\nstdout: %s\nstderr: %s", code, tc.code, stdout, stderr)
			}
		})
	}
}

// result writes a matrix of one cell with the given goodputs.
func result(t *testing.T, rates ...float64) string {
	t.Helper()
	c := &cell.Cell{Key: cell.Key{Client: "a", Server: "b", Stack: "noise+yamux", Streams: 1, Connections: 1}}
	for _, r := range rates {
		c.Reps = append(c.Reps, cell.Rep{State: cell.OK, Goodput: r, Received: 1})
	}
	c.Summarise()
	if len(rates) == 0 {
		c.State, c.Reason = cell.Unavailable, "no compiler"
	}
	file := filepath.Join(t.TempDir(), "result.json")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	m := &cell.Matrix{SchemaVersion: cell.SchemaVersion, Cells: []*cell.Cell{c}}
	if err := errors.Join(m.Write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCompareAsAGate(t *testing.T) {
	fast, slow := result(t, 10e9, 10.1e9, 10.2e9, 10.3e9, 10.4e9), result(t, 8e9, 8.1e9, 8.2e9, 8.3e9, 8.4e9)
	for _, tc := range []struct {
		name     string
		old, now string
		code     int
		says     string
	}{
		{"a loss", fast, slow, 7, "a to b over noise+yamux lost 19.6 %"},
		{"a gain", slow, fast, 0, "faster"},
		{"itself", fast, fast, 0, "a tie"},
		{"a peer that is gone", fast, result(t), 7, "no number any more"},
		{"too few repetitions", result(t, 10e9, 11e9, 12e9), result(t, 1e9, 2e9, 3e9), 1, "--reps 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := command("compare", tc.old, tc.now, "--threshold", "5%")
			if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
				t.Errorf("code %d, want %d with %q\n%s%s", code, tc.code, tc.says, stdout, stderr)
			}
		})
	}
}

// TestKilled: SIGKILL, which nobody can answer, leaves nothing running: two matrices, one of which is killed.
func TestKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Each client tells its process id, and stays.
	note := filepath.Join(t.TempDir(), "pid")
	var commands []*exec.Cmd
	for i := range 2 {
		cmd := exec.Command(exe, "--peers", peers(t, fmt.Sprintf("echo $$ >%s.%d.new; mv %s.%d.new %s.%d; exec sleep 300", note, i, note, i, note, i)),
			"-t", "1", "--reps", "1", "--no-noise", "--out", t.TempDir(), "--timeout", "300")
		cmd.Env = append(os.Environ(), "MATRIX_TEST_COMMAND=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, cmd)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer commands[1].Process.Kill()
	for _, cmd := range commands {
		wg.Go(func() { _ = cmd.Wait() })
	}
	killed, other := waitForPID(t, note+".0"), waitForPID(t, note+".1")
	if err := commands[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); running(killed); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the client, process %d, outlived its matrix", killed)
		}
	}
	if !running(other) {
		t.Error("the other matrix lost its client")
	}
}

func waitForPID(t *testing.T, file string) (pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil {
			if _, err := fmt.Sscan(string(b), &pid); err == nil {
				return pid
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was never written", file)
		}
	}
}

// running reports whether a process is there and not a zombie that nobody reaps.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}
