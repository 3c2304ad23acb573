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

// reads measures until the reading is within share of the truth, a few times at most: a busy machine makes a
// path slower than it should be, and the tool then tells the truth about that. A reading that is better than
// the truth is wrong at once.
func reads(t *testing.T, what string, truth, share float64, worse func(got float64) bool, measure func() float64) {
	t.Helper()
	var got float64
	for range 5 {
		got = measure()
		if math.Abs(got-truth) <= share*truth {
			return
		}
		if !worse(got) {
			break
		}
	}
	t.Errorf("%s: read %.6g, the truth is %.6g", what, got, truth)
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
	slower := func(truth float64) func(float64) bool { return func(got float64) bool { return got < truth } }
	for _, stack := range [][2]string{{"noise", "yamux"}, {"plaintext", "none"}, {"plaintext", "wisp"}} {
		t.Run("rate/"+stack[0]+"+"+stack[1], func(t *testing.T) {
			reads(t, "goodput", rate, 0.01, slower(rate), func() float64 {
				r := measured(t, "--security", stack[0], "--mux", stack[1], "-t", "3", "-O", "0.5", "-l", "16K", slow.Addr())
				if at := r.Directions[0].MeasuredAt; at != "receiver" {
					t.Fatalf("measured at the %s", at)
				}
				return r.Directions[0].Receiver.Goodput()
			})
		})
	}
	t.Run("pace", func(t *testing.T) {
		reads(t, "paced goodput", 40e6, 0.01, slower(40e6), func() float64 {
			return measured(t, "-t", "3", "-b", "40M", "-l", "4K", target).Directions[0].Receiver.Goodput()
		})
	})

	const delay = 20 * time.Millisecond
	far, err := link.Listen(t.Context(), target, link.Path{Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	t.Run("latency", func(t *testing.T) {
		truth := float64(2 * delay)
		reads(t, "median round trip", truth, 0.05, func(got float64) bool { return got > truth }, func() float64 {
			l := measured(t, "--test", "rr", "-n", "50", far.Addr()).Latency
			if perSecond := 1 / l.Corrected.Mean.Seconds(); math.Abs(l.PerSecond-perSecond) > 0.02*perSecond {
				t.Errorf("%.4g transactions a second of %v each", l.PerSecond, l.Corrected.Mean)
			}
			return float64(l.Corrected.P50)
		})
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
