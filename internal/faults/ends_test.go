// The programs: built once, a server that can be stopped and killed, clients whose end is known.

//go:build linux

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxperf/internal/programs"
	"muxperf/report"
)

// patience is how long anything that is sure to happen may take on a busy machine.
const patience = 2 * time.Minute

var binaries = sync.OnceValues(programs.Build)

// TestMain lets more tests run at once than there are processors: they wait for time limits, mostly.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	code := m.Run()
	if dir, err := binaries(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// A server is a process of ours.
type server struct {
	t    *testing.T
	addr string // host:port or unix:/path, as a client takes it
	cmd  *exec.Cmd
	log  *transcript
	done chan struct{}
}

// startServer runs the server on tcp or unix, with words of the shell before it, such as a limit.
func startServer(t *testing.T, network, before string, args ...string) *server {
	t.Helper()
	return startProgram(t, program(t, "server"), network, before, args...)
}

// startProgram is startServer for another build of it.
func startProgram(t *testing.T, path, network, before string, args ...string) *server {
	t.Helper()
	listen := "127.0.0.1:0"
	if network == "unix" {
		listen = unixName(t)
	}
	line := before + ` exec "$0" "$@"`
	cmd := exec.Command("sh", append([]string{"-c", line, path, "--listen", listen, "--json=peer"}, args...)...)
	s := &server{t: t, cmd: cmd, log: &transcript{}, done: make(chan struct{})}
	cmd.Stderr = s.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(s.done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var m struct{ Event, Address string }
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.Event == "ready" {
				ready <- m.Address
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(s.kill)
	select {
	case at := <-ready:
		s.addr = listen
		var port int
		if network == "tcp" {
			if _, err := fmt.Sscanf(at, "/ip4/127.0.0.1/tcp/%d/", &port); err != nil {
				t.Fatalf("the server is at %q: %v", at, err)
			}
			s.addr = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
		}
	case <-s.done:
		t.Fatalf("the server ended: %s", s.log)
	case <-time.After(patience):
		t.Fatal("the server is not ready")
	}
	return s
}

// unixName is a path for a socket, short enough for one (108 bytes).
func unixName(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muxperf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return "unix:" + filepath.Join(dir, "s")
}

// A transcript is what a process says, while it says it.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *transcript) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (s *server) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }

func (s *server) kill() {
	s.signal(syscall.SIGCONT)
	s.signal(syscall.SIGKILL)
	<-s.done
}

// files is how many descriptors it has open.
func (s *server) files() int {
	names, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	return len(names)
}

// rests waits until it has no more descriptors than before.
func (s *server) rests(before int) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); s.files() > before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Errorf("the server has %d open files, %d before", s.files(), before)
			return
		}
	}
}

// An outcome is how a client ended.
type outcome struct {
	code   int
	result report.Result
	stderr string
}

// run runs a client; meanwhile (if not nil) is called with its process. A client that outlives patience fails the
// test: no fault may make it hang.
func run(t *testing.T, meanwhile func(*os.Process), args ...string) outcome {
	t.Helper()
	return runProgram(t, program(t, "client"), meanwhile, args...)
}

// runProgram is run for another build of the client.
func runProgram(t *testing.T, path string, meanwhile func(*os.Process), args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"-J", "--connect-timeout", "5", "--handshake-timeout", "5", "--rcv-timeout", "2"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if meanwhile != nil {
		meanwhile(cmd.Process)
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		t.Fatalf("the client hangs: %v", args)
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if o.code >= 0 {
		if err := json.Unmarshal(stdout.Bytes(), &o.result); err != nil {
			t.Errorf("the client printed no JSON (%v), code %d: %s%s", err, o.code, stdout.String(), o.stderr)
		}
	}
	return o
}

// served runs a whole, small client, as the next one after a fault.
func (s *server) served(stack stack) {
	s.t.Helper()
	o := run(s.t, nil, append(stack.client("-n", "1M", "--verify", "--rcv-timeout", "60"), s.addr)...)
	o.ended(s.t, "after a fault", 0)
	o.carried(s.t, 1<<20)
}

// carried judges a client whose run was whole: its one direction's bytes arrived, all of them.
func (o outcome) carried(t *testing.T, bytes uint64) {
	t.Helper()
	if len(o.result.Directions) != 1 {
		t.Errorf("%d directions: %s", len(o.result.Directions), o.stderr)
		return
	}
	if d := o.result.Directions[0]; d.Receiver == nil || d.Receiver.Bytes != bytes {
		t.Errorf("%d bytes were to arrive: %+v", bytes, d.Receiver)
	}
}

// ended judges the exit code.
func (o outcome) ended(t *testing.T, how string, codes ...int) {
	t.Helper()
	if !slices.Contains(codes, o.code) {
		t.Errorf("a client %s ended with %d, want %v: %v %s", how, o.code, codes, o.result.Error, o.stderr)
	}
}

// failed judges a client whose run could not be whole: a code of failure, one line that says why, and in the JSON
// the same.
func (o outcome) failed(t *testing.T) {
	t.Helper()
	if o.code <= 0 || o.result.Error == nil || o.result.Error.Message == "" || strings.Contains(strings.TrimSpace(o.stderr), "\n") {
		t.Errorf("it ended with %d, %v, and said %q", o.code, o.result.Error, o.stderr)
	}
}
