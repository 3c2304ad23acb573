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
	addr string // host:port
	cmd  *exec.Cmd
	log  *transcript
	done chan struct{}
}

// startServer runs the server, with words of the shell before it, such as a limit.
func startServer(t *testing.T, before string, args ...string) *server {
	t.Helper()
	line := before + ` exec "$0" "$@"`
	cmd := exec.Command("sh", append([]string{"-c", line, program(t, "server"), "--listen", "127.0.0.1:0", "--json=peer"}, args...)...)
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
		var port int
		if _, err := fmt.Sscanf(at, "/ip4/127.0.0.1/tcp/%d/", &port); err != nil {
			t.Fatalf("the server is at %q: %v", at, err)
		}
		s.addr = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	case <-s.done:
		t.Fatalf("the server ended: %s", s.log)
	case <-time.After(patience):
		t.Fatal("the server is not ready")
	}
	return s
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "client"), append([]string{"-J", "--connect-timeout", "5", "--handshake-timeout", "5", "--rcv-timeout", "2"}, args...)...)
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
func (s *server) served(stack []string) {
	s.t.Helper()
	o := run(s.t, nil, append(append([]string{"-n", "1M", "--verify", "--rcv-timeout", "60"}, stack...), s.addr)...)
	if o.code != 0 || len(o.result.Directions) != 1 || o.result.Directions[0].Receiver == nil || o.result.Directions[0].Receiver.Bytes != 1<<20 {
		s.t.Errorf("the next client ended with %d: %v %s", o.code, o.result.Error, o.stderr)
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
