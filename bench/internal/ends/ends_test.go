// The programs here are shell scripts: what is tested is what is read from them and how they end.

package ends

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerIsReadyAndEnds(t *testing.T) {
	s, err := Start(t.Context(), "sh", "-c", `echo noise; echo '{"event":"ready","address":"/ip4/127.0.0.1/tcp/4001/p2p/x"}'; exec sleep 600`)
	if err != nil {
		t.Fatal(err)
	}
	if s.HostPort() != "127.0.0.1:4001" {
		t.Errorf("the address is %s", s.HostPort())
	}
	if m := s.Memory(); runtime.GOOS == "linux" && (m.Now <= 0 || m.Peak < m.Now) {
		t.Errorf("memory %+v", m)
	}
	s.Stop()
}

func TestServerThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := Start(t.Context(), "sh", "-c", "echo no such port >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no such port") {
		t.Errorf("the error is %v", err)
	}
}

func TestRun(t *testing.T) {
	out, peak, err := Run(t.Context(), "sh", "-c", "echo result; exec sleep 0.3")
	if err != nil || string(out) != "result\n" || runtime.GOOS == "linux" && peak.Peak <= 0 {
		t.Errorf("%q, %+v, %v", out, peak, err)
	}
	if _, _, err := Run(t.Context(), "sh", "-c", "echo the reason >&2; exit 1"); err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("the error is %v", err)
	}
}

func TestClientsErrorIsTheResults(t *testing.T) {
	script := filepath.Join(t.TempDir(), "client")
	text := "#!/bin/sh\n" + `echo '{"error":{"kind":"refused","message":"too many"}}'; exit 4`
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, err := Client(t.Context(), script)
	if err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("the error is %v", err)
	}
}
