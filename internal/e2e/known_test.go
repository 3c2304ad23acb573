package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"muxperf/bench/link"
	"muxperf/report"
)

// measured runs the client with -J and decodes its result.
func measured(t *testing.T, args ...string) *report.Result {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin(t), "client"), append([]string{"-J"}, args...)...).Output()
	r := &report.Result{}
	if jerr := json.Unmarshal(out, r); err != nil || jerr != nil {
		t.Fatalf("client %v: %v, %v\n%s", args, err, jerr, out)
	}
	return r
}

// within fails if got is off want by more than share.
func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("%s: read %.6g, the truth is %.6g", what, got, want)
	}
}

// TestKnownAnswers: a path of exactly known rate and delay, and a known number of bytes, on real sockets. What
// the tool reads has to be the truth: 1 % for a rate, 5 % for a latency, not one byte off.
func TestKnownAnswers(t *testing.T) {
	server := startPeer(t, filepath.Join(bin(t), "server"), "-p", "0", "-B", "127.0.0.1", "--json=peer")
	target := hostPort(t, server.address)

	const rate = 80e6
	slow, err := link.Listen(t.Context(), target, link.Path{Rate: rate, Queue: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	for _, stack := range [][2]string{{"noise", "yamux"}, {"plaintext", "none"}, {"plaintext", "wisp"}} {
		t.Run("rate/"+stack[0]+"+"+stack[1], func(t *testing.T) {
			r := measured(t, "--security", stack[0], "--mux", stack[1], "-t", "3", "-O", "0.5", "-l", "16K", slow.Addr())
			d := r.Directions[0]
			if d.MeasuredAt != "receiver" {
				t.Fatalf("measured at the %s", d.MeasuredAt)
			}
			within(t, "goodput", d.Receiver.Goodput(), rate, 0.01)
		})
	}
	t.Run("pace", func(t *testing.T) {
		r := measured(t, "-t", "3", "-b", "40M", "-l", "4K", target)
		within(t, "paced goodput", r.Directions[0].Receiver.Goodput(), 40e6, 0.01)
	})

	const delay = 20 * time.Millisecond
	far, err := link.Listen(t.Context(), target, link.Path{Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	t.Run("latency", func(t *testing.T) {
		r := measured(t, "--test", "rr", "-n", "50", far.Addr())
		within(t, "median round trip", float64(r.Latency.Corrected.P50), float64(2*delay), 0.05)
		within(t, "transactions", r.Latency.PerSecond, 1/(2*delay).Seconds(), 0.05)
	})
	t.Run("bytes", func(t *testing.T) {
		for _, n := range []uint64{1, 12345, 10_000_019} {
			r := measured(t, "-n", fmt.Sprint(n), "--bidir", "--verify", "-P", "3", target)
			for _, d := range r.Directions {
				if d.Receiver.Bytes != n || d.Sender.Bytes != n || !d.Receiver.Verified {
					t.Errorf("%s of %d bytes: %d received, %d sent, verified %t", d.Name, n, d.Receiver.Bytes, d.Sender.Bytes, d.Receiver.Verified)
				}
			}
		}
	})
}

// hostPort takes host and port out of /ip4/H/tcp/P/….
func hostPort(t *testing.T, multiaddr string) string {
	t.Helper()
	var a, b, c, d, port int
	if n, err := fmt.Sscanf(multiaddr, "/ip4/%d.%d.%d.%d/tcp/%d/", &a, &b, &c, &d, &port); n != 5 {
		t.Fatalf("%s: %v", multiaddr, err)
	}
	return fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, port)
}
