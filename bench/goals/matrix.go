// Rows that the matrix measures: which cells they need, one run of the matrix for all rows of a stack and
// shape, and the values of each repetition out of its JSON.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxperf/bench/internal/ends"
	"muxperf/matrix/cell"
)

// finalists is how many foreign pairs of Wisp are measured in full: those that were fastest in a short run of
// all of them.
const finalists = 3

// A group is the cells that one run of the matrix can measure.
type group struct {
	stack, mode          string
	streams, connections int
}

// A duel is two cells of a group, each CLIENT:SERVER. Without theirs it is the fastest pair without us.
type duel struct {
	group
	ours, theirs string
}

// A bench is what rows share while they are measured.
type bench struct {
	config
	dir    string           // of the built programs
	logs   string           // of the matrix
	log    io.Writer        // where progress goes
	pairs  map[group]string // cells that the chosen rows need
	done   map[group]*cell.Matrix
	failed map[group]error
}

// prepare builds the programs and collects the cells.
func prepare(ctx context.Context, c config, rows []goal, dir, logs string, log io.Writer) (*bench, error) {
	b := &bench{config: c, dir: dir, logs: logs, log: log, pairs: map[group]string{}, done: map[group]*cell.Matrix{}, failed: map[group]error{}}
	for _, g := range rows {
		if g.duel == nil {
			continue
		}
		for _, pair := range []string{g.duel.ours, g.duel.theirs} {
			if had := strings.Split(b.pairs[g.duel.group], ","); pair != "" && !slices.Contains(had, pair) {
				b.pairs[g.duel.group] = strings.Trim(b.pairs[g.duel.group]+","+pair, ",")
			}
		}
	}
	return b, ends.Build(ctx, ".", dir, "muxperf/client", "muxperf/server", "muxperf/matrix")
}

// duel is the samples of a row.
func (b *bench) duel(ctx context.Context, d duel) (samples, error) {
	m, err := b.matrix(ctx, d)
	if err != nil {
		return samples{}, err
	}
	s := samples{unit: "Gbit/s"}
	theirs := d.theirs
	if theirs == "" {
		best := fastest(m, 1)
		if len(best) == 0 {
			return s, &unavailable{"no foreign pair runs here: " + reasons(m)}
		}
		theirs = best[0]
		s.against = strings.Replace(theirs, ":", " to ", 1)
	}
	x, y := find(m, d.ours), find(m, theirs)
	for _, c := range []*cell.Cell{x, y} {
		switch {
		case c == nil:
			return s, &unavailable{"the matrix has no such cell"}
		case c.State == cell.Unavailable || c.State == cell.Unsupported:
			return s, &unavailable{c.Reason}
		case c.State.Bad():
			return s, fmt.Errorf("%s to %s: %s: %s", c.Client, c.Server, c.State, c.Reason)
		}
	}
	for i := range min(len(x.Reps), len(y.Reps)) { // the same index is the same round: only an interruption leaves one out
		s.ours, s.theirs = append(s.ours, x.Reps[i].Goodput/1e9), append(s.theirs, y.Reps[i].Goodput/1e9)
	}
	return s, nil
}

// matrix measures the group of a duel, once.
func (b *bench) matrix(ctx context.Context, d duel) (*cell.Matrix, error) {
	if m, err := b.done[d.group], b.failed[d.group]; m != nil || err != nil {
		return m, err
	}
	pairs := b.pairs[d.group]
	var err error
	if d.theirs == "" {
		var trial *cell.Matrix
		if trial, err = b.runMatrix(ctx, d.group, "wisp-*:wisp-*", min(b.seconds, 1), 1); err == nil {
			best := fastest(trial, finalists)
			if len(best) == 0 { // it has the reasons
				b.done[d.group] = trial
				return trial, nil
			}
			pairs = strings.Join(append([]string{pairs}, best...), ",")
		}
	}
	if err == nil {
		b.done[d.group], err = b.runMatrix(ctx, d.group, pairs, b.seconds, b.reps)
	}
	b.failed[d.group] = err
	return b.done[d.group], err
}

// runMatrix runs the matrix program and reads its JSON. That some cell failed is said there too.
func (b *bench) runMatrix(ctx context.Context, g group, pairs string, seconds float64, reps int) (*cell.Matrix, error) {
	out := filepath.Join(b.logs, strings.Trim(fmt.Sprintf("%s-%s-%dx%d-%d", g.stack, g.mode, g.connections, g.streams, reps), "-"))
	args := []string{"--stack", g.stack, "--only", pairs, "--no-noise", "-t", strconv.FormatFloat(seconds, 'f', -1, 64),
		"--reps", strconv.Itoa(reps), "-P", strconv.Itoa(g.streams), "--connections", strconv.Itoa(g.connections), "--out", out}
	if g.mode != "" {
		args = append(args, "--mode", g.mode)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "matrix"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stdout, cmd.Stderr = b.log, b.log
	err := cmd.Run()
	f, openErr := os.Open(filepath.Join(out, "result.json"))
	if openErr != nil {
		return nil, fmt.Errorf("the matrix has left no result: %w", errors.Join(err, openErr))
	}
	defer f.Close()
	return cell.Read(f)
}

// fastest are the pairs without us with the highest medians.
func fastest(m *cell.Matrix, n int) []string {
	var cells []*cell.Cell
	for _, c := range m.Cells {
		if c.Client != "muxperf" && c.Server != "muxperf" && c.Median > 0 && !c.State.Bad() {
			cells = append(cells, c)
		}
	}
	slices.SortStableFunc(cells, func(a, b *cell.Cell) int { return cmp.Compare(b.Median, a.Median) })
	var out []string
	for _, c := range cells[:min(n, len(cells))] {
		out = append(out, c.Client+":"+c.Server)
	}
	return out
}

// reasons are why cells have no number.
func reasons(m *cell.Matrix) string {
	var out []string
	for _, c := range m.Cells {
		if c.Reason != "" && !slices.Contains(out, c.Reason) {
			out = append(out, c.Reason)
		}
	}
	return strings.Join(out, "; ")
}

func find(m *cell.Matrix, pair string) *cell.Cell {
	for _, c := range m.Cells {
		if c.Client+":"+c.Server == pair && c.Copy == 0 {
			return c
		}
	}
	return nil
}
