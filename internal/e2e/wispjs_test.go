//go:build unix

package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"muxperf/matrix/peer"
)

// A target is where a Wisp server leads to: it discards or echoes, and counts.
type target struct {
	addr string
	mu   sync.Mutex
	sum  int64
}

func newTarget(t *testing.T, echo bool) *target {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	g := &target{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(conn, echo)
		}
	}()
	return g
}

func (g *target) serve(conn net.Conn, echo bool) {
	defer conn.Close()
	back := io.Discard
	if echo {
		back = conn
	}
	_, _ = io.Copy(back, io.TeeReader(conn, g))
}

// Write counts.
func (g *target) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sum += int64(len(b))
	return len(b), nil
}

// arrived waits until n bytes have arrived since the last call, and returns how many did.
func (g *target) arrived(n int64) (got int64) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		g.mu.Lock()
		got = g.sum
		g.mu.Unlock()
		if got >= n {
			break
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	got, g.sum = g.sum, 0
	return got
}

// TestWispJS runs our commands against wisp-js: both roles, both versions, flood and echo, 1 and 10 streams. What
// the client sent, what arrived behind the server, and what came back are equal.
func TestWispJS(t *testing.T) {
	tool(t, "node")
	tool(t, "npm")
	ours, js := bin(t), wispJS(t)
	const bytes = 10_000_003
	for _, mode := range []string{"flood", "echo"} {
		g := newTarget(t, mode == "echo")
		theirs := startPeer(t, "node", js, "server", "--listen", "127.0.0.1:0")
		own := startPeer(t, filepath.Join(ours, "server"), "-p", "0", "-B", "127.0.0.1", "--wisp-allow", g.addr, "--json=peer")
		for _, version := range []string{"1", "2"} {
			for _, streams := range []string{"1", "10"} {
				t.Run(fmt.Sprintf("%s, version %s, %s streams", mode, version, streams), func(t *testing.T) {
					protocol := map[string]string{"flood": "discard", "echo": "echo"}[mode]
					check(t, "ours to theirs", g, mode, bytes, runPeer(t, filepath.Join(ours, "client"), "--target", g.addr, "--protocol", protocol,
						"--wisp-version", version, "-P", streams, "-n", fmt.Sprint(bytes), "--json=peer", theirs.address))
					check(t, "theirs to ours", g, mode, bytes, runPeer(t, "node", js, "client", "--connect", wsAddress(t, own.address), "--target", g.addr,
						"--mode", mode, "--wisp-version", version, "--streams", streams, "--bytes", fmt.Sprint(bytes)))
				})
			}
		}
	}
}

// wsAddress is the WebSocket at the port that a ready line's multiaddr has.
func wsAddress(t *testing.T, ready string) string {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(ready, "/ip4/127.0.0.1/tcp/%d/", &port); err != nil {
		t.Fatalf("%s: %v", ready, err)
	}
	return fmt.Sprintf("ws://127.0.0.1:%d/", port)
}

func check(t *testing.T, name string, g *target, mode string, bytes float64, client map[string]any) {
	t.Helper()
	back := map[string]float64{"flood": 0, "echo": bytes}[mode]
	if got := g.arrived(int64(bytes)); client["sent_bytes"] != bytes || float64(got) != bytes || client["received_bytes"] != back {
		t.Errorf("%s: the client says %v, %d bytes arrived; %v were to be sent and %v to come back", name, client, got, bytes, back)
	}
}

// wispJS builds the peer as the matrix does, and returns its program.
func wispJS(t *testing.T) string {
	t.Helper()
	const dir = "../../peers/wisp-js"
	text, err := os.ReadFile(filepath.Join(dir, "peer.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := peer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("sh", "-c", p.Build)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the peer: %v\n%s", err, out)
	}
	return filepath.Join(dir, "peer.mjs")
}
