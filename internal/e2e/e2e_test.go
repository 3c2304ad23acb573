// Package e2e tests the commands as users run them: scripts that specify the command line, and runs
// against other implementations.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long anything that is sure to happen may take on a busy machine.
const patience = 60 * time.Second

// binaries builds the commands once for all tests, and returns their folder.
var binaries = sync.OnceValues(programs.Build)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := binaries(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func bin(t testing.TB) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestScripts(t *testing.T) {
	dir := bin(t)
	schema, err := filepath.Abs("../../docs/result.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", dir+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("SCHEMA", schema)
			e.Values[programKey("server")] = new(*program)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":    cmdServe,
			"signal":   cmdSignal,
			"listener": cmdListener,
			"valid":    cmdValid,
		},
	})
}

// A program is a server that a script has started.
type program struct {
	cmd    *exec.Cmd
	stdout *lockedBuffer
	stderr *lockedBuffer
}

type programKey string

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// cmdServe is "serve [flags]": it starts a server on a free port of loopback, waits until it listens, and sets
// ADDR, PORT and PEER. "serve stop" ends it with SIGTERM; it has to exit with 0, and its output is put into
// server.out and server.err. "serve wait" waits for it to end by itself.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case len(args) == 1 && (args[0] == "stop" || args[0] == "wait"):
		p := *ts.Value(programKey("server")).(**program)
		if args[0] == "stop" {
			ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
		}
		err := p.cmd.Wait()
		ts.Check(os.WriteFile(ts.MkAbs("server.out"), []byte(p.stdout.String()), 0o644))
		ts.Check(os.WriteFile(ts.MkAbs("server.err"), []byte(p.stderr.String()), 0o644))
		if (err != nil) != neg {
			ts.Fatalf("the server ended with %v: %s", err, p.stderr)
		}
		return
	}
	startServer(ts, args)
}

func startServer(ts *testscript.TestScript, args []string) {
	p := &program{stdout: &lockedBuffer{}, stderr: &lockedBuffer{}}
	p.cmd = exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "server"), append([]string{"-p", "0", "-B", "127.0.0.1"}, args...)...)
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Env = append(os.Environ(), "WORK="+ts.Getenv("WORK"))
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	ts.Defer(func() { _ = p.cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	deadline := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer deadline.Stop()
	var address string
	for address == "" {
		line, err := lines.ReadString('\n')
		fmt.Fprint(p.stdout, line)
		if err != nil {
			ts.Fatalf("the server did not say that it listens: %s", p.stderr)
		}
		address = readyAddress(line)
	}
	go io.Copy(p.stdout, lines)
	parts := strings.Split(address, "/") // /ip4/A/tcp/P/p2p/ID
	ts.Setenv("ADDR", parts[2]+":"+parts[4])
	ts.Setenv("PORT", parts[4])
	ts.Setenv("PEER", parts[6])
	ts.Setenv("MULTIADDR", address)
	*ts.Value(programKey("server")).(**program) = p
}

// readyAddress finds the multiaddr in a line of the announcement; "" if there is none.
func readyAddress(line string) string {
	var ready struct{ Event, Address string }
	if json.Unmarshal([]byte(line), &ready) == nil && ready.Event == "ready" {
		return ready.Address
	}
	if s := strings.TrimSpace(line); strings.HasPrefix(s, "/ip4/") {
		return s
	}
	return ""
}

// cmdSignal is "signal after TEXT NAME command…": it runs a command, sends it SIGINT when its output shows
// TEXT, and puts its stdout into NAME. Its exit code has to be 130.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	text, name, command := args[1], args[2], args[3:]
	cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], command[0]), command[1:]...)
	cmd.Dir = ts.MkAbs(".")
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ts.Check(cmd.Start())
	deadline := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	var all strings.Builder
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<22)
	sent := false
	for s.Scan() {
		all.WriteString(s.Text() + "\n")
		if !sent && strings.Contains(s.Text(), text) {
			sent = true
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs(name), []byte(all.String()), 0o644))
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		ts.Fatalf("exit code %d, want 130: %s", code, stderr.String())
	}
}

// cmdListener is "listener TEXT": it listens on a free port, greets each connection with TEXT, reads on, and
// sets STRANGER to its address.
func cmdListener(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	greeting := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(args[0])
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, greeting)
				conn.SetReadDeadline(time.Now().Add(patience))
				io.Copy(io.Discard, conn)
			}()
		}
	}()
	ts.Setenv("STRANGER", l.Addr().String())
}

// A peerProcess is a peer program that serves.
type peerProcess struct {
	address string
	lines   chan map[string]any
	stop    func()
}

// startPeer runs a server that prints the lines of docs/peers.md, and waits for its ready line.
func startPeer(t *testing.T, name string, args ...string) *peerProcess {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &peerProcess{lines: make(chan map[string]any, 256)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<22)
		for s.Scan() {
			var m map[string]any
			if json.Unmarshal(s.Bytes(), &m) == nil {
				p.lines <- m
			}
		}
	}()
	p.stop = func() { cancel(); <-done; _ = cmd.Wait() }
	t.Cleanup(p.stop)
	ready := p.next(t, "ready")
	p.address = ready["address"].(string)
	return p
}

// next returns the next line with an event.
func (p *peerProcess) next(t *testing.T, event string) map[string]any {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case m, ok := <-p.lines:
			if !ok {
				t.Fatalf("the server ended before its %s", event)
			}
			if m["event"] == event {
				return m
			}
		case <-timer.C:
			t.Fatalf("no %s within %s", event, patience)
		}
	}
}

// runPeer runs a client to its end and returns its result line.
func runPeer(t *testing.T, name string, args ...string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr.String())
	}
	var last map[string]any
	for line := range strings.Lines(string(out)) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["event"] == "result" {
			last = m
		}
	}
	if last == nil {
		t.Fatalf("%s %v printed no result: %s", name, args, out)
	}
	return last
}
