// What a testee does with a peer: echo, discard, generate; with one that does not read, ends or goes away; and what
// its places and its configuration may be.

package testee

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if MaybeWorker() || child() {
		return
	}
	// Children of the tests that run with the race detector would sleep for a second at their end.
	os.Setenv("GORACE", "atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	goleak.VerifyTestMain(m)
}

// patience is how long anything that is sure to happen may take.
const patience = 30 * time.Second

func engines() []string {
	if runtime.GOOS == "linux" {
		return []string{EngineNet, EngineEpoll}
	}
	return []string{EngineNet}
}

// start serves a testee until the test ends.
func start(t *testing.T, spec string, cfg Config) *Testee {
	t.Helper()
	s, err := ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	te, err := Listen(t.Context(), s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- te.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := te.Stats().Open; n != 0 {
			t.Errorf("%d connections are counted as open after the end", n)
		}
	})
	return te
}

func dial(t *testing.T, te *Testee) net.Conn {
	t.Helper()
	conn, err := net.Dial(te.Addr().Network(), te.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { conn.Close() })
	return conn
}

func each(t *testing.T, test func(t *testing.T, engine string)) {
	for _, e := range engines() {
		t.Run(e, func(t *testing.T) { test(t, e) })
	}
}

func TestEchoIsWholeAndEndsWithTheData(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		for _, spec := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
			te := start(t, spec, Config{Engine: engine})
			var wg sync.WaitGroup
			for i := range 20 {
				conn := dial(t, te)
				wg.Go(func() {
					want := bytes.Repeat([]byte{byte(i), 2, 3}, 100_000)
					go func() {
						conn.Write(want)
						conn.(interface{ CloseWrite() error }).CloseWrite()
					}()
					if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d of %d bytes came back, %v", len(got), len(want), err)
					}
				})
			}
			wg.Wait()
		}
	})
}

// TestEndOfDataIsAnsweredByOne: netperf's TCP_CRR without a control connection sends its end of data and
// waits for the peer's.
func TestEndOfDataIsAnsweredByOne(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		for _, mode := range []string{"echo", "discard"} {
			conn := dial(t, start(t, mode+"=127.0.0.1:0", Config{Engine: engine}))
			conn.(*net.TCPConn).CloseWrite()
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: %v, want the end of data", mode, err)
			}
		}
	})
}

func TestDiscardAndChargen(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		te := start(t, "discard=127.0.0.1:0", Config{Engine: engine})
		conn := dial(t, te)
		conn.Write(make([]byte, 1_000_000))
		conn.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || len(got) != 0 || te.Stats().In != 1_000_000 {
			t.Errorf("%d bytes came back, %d were counted, %v", len(got), te.Stats().In, err)
		}
		conn = dial(t, start(t, "chargen=127.0.0.1:0", Config{Engine: engine}))
		got := make([]byte, 500_000)
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.HasPrefix(got, letters()[:100]) {
			t.Errorf("chargen sent %q, %v", got[:20], err)
		}
	})
}

func TestResetConnection(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		te := start(t, "127.0.0.1:0", Config{Engine: engine})
		for range 50 {
			conn := dial(t, te)
			conn.Write([]byte("half a word"))
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
		conn := dial(t, te)
		conn.Write([]byte("x"))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		for deadline := time.Now().Add(patience); te.Stats().Open != 1; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections are still open", te.Stats().Open)
			}
		}
	})
}

func TestPlacesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, []byte("mine"), 0o600)
	te := start(t, "unix:"+filepath.Join(dir, "used"), Config{})
	for _, tc := range []struct{ spec, want string }{
		{"unix:" + file, "not a socket"},
		{"unix:" + filepath.Join(dir, "used"), "another server listens"},
		{"unix:" + filepath.Join(dir, "no", "folder"), "no such file"},
		{"no.such.host.invalid:9000", "no.such.host.invalid"},
	} {
		s, err := ParseSpec(tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(t.Context(), s, Config{}); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", tc.spec, err, tc.want)
		}
	}
	_ = te
	for _, bad := range []string{"", "sing=:1", "host", ":70000", ":-1", "unix:", "unix:" + strings.Repeat("x", 200)} {
		if s, err := ParseSpec(bad); err == nil {
			t.Errorf("%q became %+v", bad, s)
		}
	}
}

func TestForeignClients(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		te := start(t, "127.0.0.1:0", Config{Engine: engine})
		host, port, _ := net.SplitHostPort(te.Addr().String())
		for _, command := range [][]string{{"socat", "-t10", "-", "TCP:" + host + ":" + port}, {"ncat", host, port}} {
			if _, err := exec.LookPath(command[0]); err != nil {
				if os.Getenv("CI") == "true" {
					t.Errorf("%s is not on this machine; .ci/install installs it", command[0])
				}
				t.Logf("%s is not on this machine", command[0])
				continue
			}
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Stdin = strings.NewReader("hello")
			if out, err := cmd.Output(); err != nil || string(out) != "hello" {
				t.Errorf("%v got %q, %v", command, out, err)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	t.Setenv("TESTEE_PORT", "9009")
	specs, err := ParseConfig([]byte(`
- id: one
  type: stream.testee
  endpoint: {type: tcp, port: 9000, interface: 127.0.0.1, backlog: 1024}
  debug: true
- type: stream.testee
  endpoint: {type: unix, path: /tmp/testee.sock}
- type: stream.testee
  mode: discard
  endpoint: {type: tcp, port: $TESTEE_PORT, version: 6, shared: true}
`))
	want := []Spec{
		{ID: "one", Mode: Echo, Network: "tcp", Address: "127.0.0.1:9000", Backlog: 1024, Debug: true},
		{ID: "transport2", Mode: Echo, Network: "unix", Address: "/tmp/testee.sock", Backlog: 50},
		{ID: "transport3", Mode: Discard, Network: "tcp6", Address: ":9009", Backlog: 50, Shared: true},
	}
	if err != nil || fmt.Sprint(specs) != fmt.Sprint(want) || len(specs) != 3 || specs[0] != want[0] || specs[1] != want[1] || specs[2] != want[2] {
		t.Errorf("%+v, %v", specs, err)
	}
	for _, tc := range []struct{ text, want string }{
		{`[]`, "empty"},
		{`! 0000000`, "list of transports"},
		{`[{"type": "stream.testee", "endpoint": {"type": "tcp", "port": -1}}]`, "port"},
		{`[{"type": "stream.testee", "endpoint": {"type": "tcp", "port": 1.5}}]`, "want a number"},
		{`{"a": 1}`, "list of transports"},
		{`[{"type": "websocket.testee"}]`, "only stream.testee"},
		{`[{"type": "stream.testee", "endpoint": {"type": "onion"}}]`, "want tcp or unix"},
		{`[{"type": "stream.testee", "endpoint": {"type": "tcp"}}]`, "port is missing"},
		{`[{"type": "stream.testee", "endpoint": {"type": "tcp", "port": 1, "tls": {}}}]`, "tls"},
		{`[{"type": "stream.testee", "endpoint": {"type": "tcp", "port": "$NO_SUCH_VARIABLE"}}]`, "no such variable"},
		{`[{"type": "stream.testee", "endpoint": {"type": "tcp", "port": 1, "version": 5}}]`, "want 4 or 6"},
	} {
		if _, err := ParseConfig([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", tc.text, err, tc.want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{":1", "echo=h:2", "unix:/x", "chargen=[::1]:3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			return
		}
		if again, err := ParseSpec(s.String()); err != nil || again != s {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, s, s.String(), again, err)
		}
	})
}

// FuzzParseConfig: whatever a person puts in the file is a list of testees or one line that says why not.
func FuzzParseConfig(f *testing.F) {
	f.Add("- type: stream.testee\n  endpoint: {type: tcp, port: 1}\n")
	f.Add("- &a {type: stream.testee}\n- *a\n- <<: *a\n")
	f.Add("[{id: x, endpoint: !!binary aaaa}]")
	f.Fuzz(func(t *testing.T, text string) {
		switch specs, err := ParseConfig([]byte(text)); {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q is answered in more than one line: %v", text, err)
		case err == nil && len(specs) == 0:
			t.Errorf("%q became no testee and no error", text)
		}
	})
}
