// The points of the curves, and how one is measured.

package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muxperf/bench/internal/ends"
	"muxperf/measure"
)

// A point is one place on one curve, and what was measured there.
type point struct {
	axis, stack                string
	streams, connections, size int // streams of each connection, bytes of a write

	goodput float64 // bits per second, at the receiver
	cpu     float64 // seconds per GB, of both ends
	client  float64 // bytes of memory at most
	server  float64
	failure string
}

// x is the point's place on its axis.
func (p point) x() float64 {
	switch p.axis {
	case "streams":
		return float64(p.streams)
	case "connections":
		return float64(p.connections)
	}
	return float64(p.size)
}

// String is a line for the terminal.
func (p point) String() string {
	where := fmt.Sprintf("%-11s %-16s %5.0f", p.axis, p.stack, p.x())
	if p.failure != "" {
		return where + "  failed: " + p.failure
	}
	return fmt.Sprintf("%s  %8.3f Gbit/s  %8.2f CPU s/GB  memory: client %.0f MB, server %.0f MB", where, p.goodput/1e9, p.cpu, p.client/1e6, p.server/1e6)
}

// stacks are the curves of each picture.
func stacks() []string { return []string{"noise+yamux", "plaintext+yamux", "plaintext+wisp"} }

const block = 128 << 10 // where the size of a write is not the axis

// plan lists the points of the axes whose names fit a pattern.
func plan(only string) []point {
	var out []point
	add := func(axis string, places []int, at func(*point, int)) {
		if ok, err := path.Match(only, axis); err != nil || !ok {
			return
		}
		for _, stack := range stacks() {
			for _, n := range places {
				p := point{axis: axis, stack: stack, streams: 1, connections: 1, size: block}
				at(&p, n)
				out = append(out, p)
			}
		}
	}
	add("streams", []int{1, 10, 100, 1000, 10_000}, func(p *point, n int) { p.streams = n })
	add("connections", []int{1, 10, 100, 1000}, func(p *point, n int) { p.connections = n })
	add("block", []int{1, 16, 256, 4 << 10, 64 << 10, 1 << 20}, func(p *point, n int) { p.size = n })
	return out
}

// point measures one point. The error ends everything; what fails in the run is in the point.
func (c config) point(ctx context.Context, dir string, p point) (point, error) {
	var goodput, cpu, client, server []float64
	for range c.reps {
		got, err := c.once(ctx, dir, p)
		if ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		if err != nil {
			p.failure = strings.Join(strings.Fields(err.Error()), " ")
			return p, nil
		}
		goodput, cpu = append(goodput, got.goodput), append(cpu, got.cpu)
		client, server = append(client, got.client), append(server, got.server)
	}
	median := func(values []float64) float64 { return measure.Median(values, 0.95).Center }
	p.goodput, p.cpu, p.client, p.server = median(goodput), median(cpu), median(client), median(server)
	return p, nil
}

// once runs a server and a client.
func (c config) once(ctx context.Context, dir string, p point) (point, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit+time.Duration(c.seconds*float64(time.Second)), fmt.Errorf("not done within %s", c.limit))
	defer cancel()
	s, err := ends.Start(ctx, filepath.Join(dir, "server"), "--bind", "127.0.0.1", "--port", "0", "--json=peer")
	if err != nil {
		return p, err
	}
	defer s.Stop()
	security, mux, _ := strings.Cut(p.stack, "+")
	r, peak, err := ends.Client(ctx, filepath.Join(dir, "client"), "--security", security, "--mux", mux,
		"--time", strconv.FormatFloat(c.seconds, 'f', -1, 64), "--length", strconv.Itoa(p.size),
		"--parallel", strconv.Itoa(p.streams), "--connections", strconv.Itoa(p.connections), s.HostPort())
	switch {
	case err != nil && ctx.Err() != nil:
		return p, context.Cause(ctx)
	case err != nil:
		return p, err
	case r.Params.Streams != p.streams || r.Params.Connections != p.connections:
		return p, fmt.Errorf("the server granted %d streams of %d connections", r.Params.Streams, r.Params.Connections)
	case len(r.Directions) == 0 || r.Directions[0].Receiver == nil || r.CPU == nil || r.PeerCPU == nil:
		return p, fmt.Errorf("the result lacks an end")
	}
	p.goodput, p.cpu = r.Directions[0].Receiver.Goodput(), r.CPU.PerGB+r.PeerCPU.PerGB
	p.client, p.server = float64(peak.Peak), float64(s.Memory().Peak)
	return p, nil
}
