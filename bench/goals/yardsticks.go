// Rows with yardsticks of their own: what the machine could do at best, and what go-libp2p's ping and idle
// streams take.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"muxperf/bench/internal/ends"
	"muxperf/report"
	"muxperf/transport/aead"
	"muxperf/transport/stack"
)

const (
	record      = 65519 // plaintext of the largest Noise record
	idleStreams = 5000
)

// physicalLimit compares Noise+Yamux with what no implementation of it can do without: each end passes over
// each byte once with the AEAD and gives it to the kernel, or takes it from there, once. An end that does one
// after the other on one core takes the sum of both times.
func physicalLimit(ctx context.Context, b *bench) (samples, error) {
	v, err := b.rounds(ctx, b.flood(stack.Noise, stack.Yamux), b.flood(stack.Plaintext, stack.None), b.sealAndOpen)
	if err != nil {
		return samples{}, err
	}
	s := samples{ours: v[0], unit: "Gbit/s"}
	for i := range v[1] {
		s.theirs = append(s.theirs, 1/(1/v[1][i]+1/v[2][i]))
	}
	s.against = fmt.Sprintf("one AEAD pass (%.3g Gbit/s) and raw TCP (%.3g) at each end", center(v[2]), center(v[1]))
	return s, nil
}

// sealAndOpen is how fast the AEAD goes over full records in Gbit/s, one core sealing while another opens, as
// they do in a flood. The slower one counts.
func (b *bench) sealAndOpen(context.Context) (float64, error) {
	provider, err := aead.Choose(aead.Auto)
	if err != nil {
		return 0, err
	}
	sealer, err := provider.New(make([]byte, 32))
	if err != nil {
		return 0, err
	}
	opener, err := provider.New(make([]byte, 32))
	if err != nil {
		return 0, err
	}
	var nonce [12]byte
	sealed := sealer.Seal(nil, nonce[:], make([]byte, record), nil)
	until := time.Now().Add(time.Duration(b.seconds / 4 * float64(time.Second)))
	var sealing, opening float64
	var openErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		in, out := make([]byte, record), make([]byte, 0, record+64)
		sealing = rate(until, func() { sealer.Seal(out, nonce[:], in, nil) })
	})
	wg.Go(func() {
		out := make([]byte, 0, record+64)
		opening = rate(until, func() {
			if _, err := opener.Open(out, nonce[:], sealed, nil); err != nil {
				openErr = err
			}
		})
	})
	wg.Wait()
	return min(sealing, opening), openErr
}

// rate repeats f, which handles a record, and returns Gbit/s.
func rate(until time.Time, f func()) float64 {
	began, n := time.Now(), 0
	for time.Now().Before(until) || n == 0 {
		f()
		n++
	}
	return float64(n) * record * 8 / 1e9 / time.Since(began).Seconds()
}

// idleLatency compares the median of our round trips of one byte with that of the library's ping.
func idleLatency(ctx context.Context, b *bench) (samples, error) {
	if err := b.buildGo(ctx); err != nil {
		return samples{}, err
	}
	v, err := b.rounds(ctx, b.roundTrips, b.ping)
	if err != nil {
		return samples{}, err
	}
	return samples{ours: v[0], theirs: v[1], unit: "us"}, nil
}

func (b *bench) roundTrips(ctx context.Context) (float64, error) {
	ctx, cancel := b.limited(ctx)
	defer cancel()
	s, err := b.ourServer(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	r, _, err := ends.Client(ctx, filepath.Join(b.dir, "client"), "--test", "rr", "-t", b.time(), s.HostPort())
	if err != nil {
		return 0, err
	}
	if r.Latency == nil || r.Latency.Corrected.Count == 0 {
		return 0, fmt.Errorf("the result has no round trips")
	}
	return float64(r.Latency.Corrected.P50) / 1e3, nil
}

func (b *bench) ping(ctx context.Context) (float64, error) {
	var r struct {
		P50 float64 `json:"p50_ns"`
	}
	err := b.goClient(ctx, &r, "ping", int(5000*b.seconds)+1, nil)
	return r.P50 / 1e3, err
}

// goClient runs go-libp2p's client against a server of its own, and decodes the result into v. look, if set, is
// called with the server before and after.
func (b *bench) goClient(ctx context.Context, v any, what string, count int, look func(*ends.Server)) error {
	ctx, cancel := b.limited(ctx)
	defer cancel()
	s, err := b.goServer(ctx)
	if err != nil {
		return err
	}
	defer s.Stop()
	if look != nil {
		if _, _, err := ends.Run(ctx, b.goPeer(), what, "--connect", s.Address, "--count", "1"); err != nil {
			return err
		}
		look(s)
	}
	out, _, err := ends.Run(ctx, b.goPeer(), what, "--connect", s.Address, "--count", strconv.Itoa(count))
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if look != nil {
		look(s)
	}
	return json.Unmarshal(out, v)
}

// idleMemory compares what an idle stream costs: at the client the growth of the live heap and the stacks, as
// both clients report it, at the server the growth of the resident set, which includes garbage.
func idleMemory(ctx context.Context, b *bench) (samples, error) {
	if err := b.buildGo(ctx); err != nil {
		return samples{}, err
	}
	v, err := b.rounds(ctx, b.ourIdle, b.goIdle)
	if err != nil {
		return samples{}, err
	}
	return samples{ours: v[0], theirs: v[1], unit: "bytes"}, nil
}

func (b *bench) ourIdle(ctx context.Context) (float64, error) {
	ctx, cancel := b.limited(ctx)
	defer cancel()
	s, err := b.ourServer(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	hold := func(n int) (*report.HoldResult, error) {
		r, _, err := ends.Client(ctx, filepath.Join(b.dir, "client"), "--test", "hold", "--hold-streams", "-P", strconv.Itoa(n), s.HostPort())
		if err == nil && r.Hold == nil {
			err = errors.New("the result has nothing of the streams")
		}
		if err != nil {
			return nil, err
		}
		return r.Hold, nil
	}
	if _, err := hold(1); err != nil { // what the first connection costs is not the streams'
		return 0, err
	}
	before := s.Memory().Now
	h, err := hold(idleStreams)
	if err != nil {
		return 0, err
	}
	held := int64(h.ServerMemory * idleStreams) // while they were idle: each carries a byte afterwards
	return h.ClientMemory + growth(before, held), nil
}

func (b *bench) goIdle(ctx context.Context) (float64, error) {
	var r struct {
		Heap float64 `json:"heap_bytes_per_stream"`
	}
	var before int64
	var server float64
	err := b.goClient(ctx, &r, "idle", idleStreams, func(s *ends.Server) {
		m := s.Memory()
		if before == 0 {
			before = m.Now
			return
		}
		server = growth(before, m.Peak)
	})
	return r.Heap + server, err
}

// growth is the server's memory for each stream.
func growth(before, after int64) float64 { return float64(max(0, after-before)) / idleStreams }

// freePort finds a port for a program that cannot choose one.
func freePort(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
