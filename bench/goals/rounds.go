// Rows that are measured with the programs directly: rounds in which each side has its turn, in an order that
// changes.

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muxperf/bench/internal/ends"
	"muxperf/transport/stack"
)

// A side gives one value of one round.
type side func(context.Context) (float64, error)

// rounds gives every side its turn, b.reps times, and returns the values of each.
func (b *bench) rounds(ctx context.Context, sides ...side) ([][]float64, error) {
	out := make([][]float64, len(sides))
	for range b.reps {
		for _, i := range rand.Perm(len(sides)) {
			v, err := sides[i](ctx)
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], v)
		}
	}
	return out, nil
}

// limited bounds what one side may take beyond its time; a hang guard.
func (b *bench) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 2*time.Minute+time.Duration(2*b.seconds*float64(time.Second)), errors.New("it does not end"))
}

func (b *bench) time() string { return strconv.FormatFloat(b.seconds, 'f', -1, 64) }

// ourServer starts our server on a free port of the loopback.
func (b *bench) ourServer(ctx context.Context) (*ends.Server, error) {
	return ends.Start(ctx, filepath.Join(b.dir, "server"), "--bind", "127.0.0.1", "--port", "0", "--json=peer")
}

// goServer starts go-libp2p's peer, and builds it first.
func (b *bench) goServer(ctx context.Context) (*ends.Server, error) {
	return ends.Start(ctx, b.goPeer(), "server", "--listen", "127.0.0.1:0", "--security", "noise")
}

func (b *bench) goPeer() string { return filepath.Join(b.dir, "go-libp2p") }

// buildGo builds go-libp2p's peer; without its modules it cannot be had.
func (b *bench) buildGo(ctx context.Context) error {
	if err := ends.Build(ctx, filepath.Join("peers", "go-libp2p"), b.dir, "."); err != nil {
		return &unavailable{err.Error()}
	}
	return nil
}

// flood is our goodput over a stack, in Gbit/s.
func (b *bench) flood(security, mux string) side {
	return func(ctx context.Context) (float64, error) {
		ctx, cancel := b.limited(ctx)
		defer cancel()
		s, err := b.ourServer(ctx)
		if err != nil {
			return 0, err
		}
		defer s.Stop()
		r, _, err := ends.Client(ctx, filepath.Join(b.dir, "client"), "--security", security, "--mux", mux, "-l", "128K", "-t", b.time(), s.HostPort())
		switch {
		case err != nil:
			return 0, err
		case len(r.Directions) == 0 || r.Directions[0].Receiver == nil:
			return 0, errors.New("the result lacks the receiver")
		}
		return r.Directions[0].Receiver.Goodput() / 1e9, nil
	}
}

// rawTCP compares bare TCP with iperf3.
func rawTCP(ctx context.Context, b *bench) (samples, error) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		return samples{}, &unavailable{"iperf3 is not on this machine"}
	}
	v, err := b.rounds(ctx, b.flood(stack.Plaintext, stack.None), b.iperf3)
	if err != nil {
		return samples{}, err
	}
	return samples{ours: v[0], theirs: v[1], unit: "Gbit/s"}, nil
}

// iperf3 is the goodput that its receiver had, in Gbit/s.
func (b *bench) iperf3(ctx context.Context) (float64, error) {
	ctx, cancel := b.limited(ctx)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	server := exec.CommandContext(ctx, "iperf3", "--server", "--one-off", "--bind", "127.0.0.1", "--port", port)
	if err := server.Start(); err != nil {
		return 0, fmt.Errorf("starting iperf3: %w", err)
	}
	defer func() { cancel(); _ = server.Wait() }()
	var doc struct {
		Error string
		End   struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	for { // it says nothing when it is ready, and a connection to try that would be its one
		out, _, runErr := ends.Run(ctx, "iperf3", "--client", "127.0.0.1", "--port", port, "--json", "--length", "131072", "--time", strconv.Itoa(max(1, int(b.seconds+0.5))))
		if err := json.Unmarshal(out, &doc); err != nil {
			return 0, errors.Join(runErr, err)
		}
		switch {
		case doc.Error == "" && doc.End.Received.Rate > 0:
			return doc.End.Received.Rate / 1e9, nil
		case !strings.Contains(doc.Error, "refused") || ctx.Err() != nil:
			return 0, fmt.Errorf("iperf3: %s", doc.Error)
		}
		doc.Error = ""
		time.Sleep(20 * time.Millisecond)
	}
}

// allocations runs the benchmark that counts them; what counts is the stack with the most.
func allocations(ctx context.Context, b *bench) (samples, error) {
	const unit = "allocs/64KiB"
	out, _, err := ends.Run(ctx, "go", "test", "-run", "-", "-bench", "^BenchmarkFlood$", "-benchtime", b.time()+"s",
		"-count", strconv.Itoa(b.reps), "-timeout", "2h", "muxperf/transport/stack")
	if err != nil {
		return samples{}, fmt.Errorf("%w: %s", err, out)
	}
	worst := samples{unit: unit}
	byStack := map[string][]float64{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		for i := 1; i < len(f); i++ {
			if f[i] != unit {
				continue
			}
			v, err := strconv.ParseFloat(f[i-1], 64)
			if err != nil {
				return samples{}, fmt.Errorf("the benchmark's %q: %w", s.Text(), err)
			}
			byStack[f[0]] = append(byStack[f[0]], v)
		}
	}
	for name, v := range byStack {
		if worst.ours == nil || center(v) > center(worst.ours) {
			_, short, _ := strings.Cut(name, "/")
			worst.ours, worst.against = v, "nothing; the worst of "+strconv.Itoa(len(byStack))+" stacks: "+short
		}
	}
	return worst, nil
}
