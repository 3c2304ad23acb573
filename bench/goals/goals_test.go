// What is decided from given samples, and what is picked out of a given matrix. Measuring itself is the
// programs', which have tests of their own.

package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"muxperf/matrix/cell"
)

func TestVerdicts(t *testing.T) {
	five := func(v float64) []float64 { return []float64{v, v * 1.01, v * 0.99, v * 1.02, v * 0.98} }
	same := func(v float64) []float64 { return slices.Repeat([]float64{v}, 5) }
	for _, tc := range []struct {
		name   string
		want   float64
		atMost bool
		s      samples
		err    error
		says   string
	}{
		{"well above", 2, false, samples{ours: five(10), theirs: same(4)}, nil, "| 2.5 | 2.45 to 2.55 | at least 2 | yes |"},
		{"below", 2, false, samples{ours: five(10), theirs: same(8)}, nil, "| no |"},
		{"on the edge", 2, false, samples{ours: five(10), theirs: same(5)}, nil, "| undecided |"},
		{"at most, below", 0.7, true, samples{ours: five(1), theirs: same(2)}, nil, "| at most 0.7 | yes |"},
		{"at most, above", 0.7, true, samples{ours: five(1), theirs: same(1)}, nil, "| no |"},
		{"values alone", 0.1, true, samples{ours: same(0.01)}, nil, "| 0.01 to 0.01 | at most 0.1 | yes |"},
		{"two rounds", 2, false, samples{ours: []float64{9, 9}, theirs: []float64{1, 1}}, nil, "undecided (2 rounds"},
		{"lacking", 2, false, samples{}, &unavailable{"there is no cargo | here"}, "unavailable (there is no cargo / here)"},
		{"broken", 2, false, samples{}, errors.New("it fell over"), "failed (it fell over)"},
		{"no values", 2, false, samples{}, nil, "failed (0 values"},
		{"rounds that do not match", 2, false, samples{ours: five(1), theirs: []float64{1}}, nil, "failed (5 values against 1)"},
		{"a yardstick of nothing", 2, false, samples{ours: five(1), theirs: same(0)}, nil, "failed (the yardstick"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := goal{name: "row", what: "this", against: "that", want: tc.want, atMost: tc.atMost}.row(tc.s, tc.err)
			if !strings.Contains(got, tc.says) || strings.Count(got, "|") != 10 {
				t.Errorf("the row is %s\nwant in it %s", got, tc.says)
			}
		})
	}
}

// TestIntervalHoldsTheRatio: the ratio of the medians need not be among the ratios of the rounds.
func TestIntervalHoldsTheRatio(t *testing.T) {
	r, err := samples{ours: []float64{10, 1, 5, 4, 6}, theirs: []float64{1, 10, 4, 5, 3}}.ratio()
	if err != nil || r.Center != 5.0/4 || r.Low > r.Center || r.High < r.Center || r.Low != 0.1 || r.High != 10 {
		t.Errorf("%+v, %v", r, err)
	}
}

// sample is a matrix of Wisp with a pair that failed and one that is missing.
func sample() *cell.Matrix {
	c := func(client, server string, state cell.State, rates ...float64) *cell.Cell {
		out := &cell.Cell{Key: cell.Key{Client: client, Server: server, Stack: "plaintext+wisp", Streams: 1, Connections: 1}}
		for _, r := range rates {
			out.Reps = append(out.Reps, cell.Rep{State: cell.OK, Goodput: r * 1e9})
		}
		out.Summarise()
		if state != cell.OK {
			out.State, out.Reason = state, "for a reason"
		}
		return out
	}
	return &cell.Matrix{SchemaVersion: cell.SchemaVersion, Cells: []*cell.Cell{
		c("muxperf", "muxperf", cell.OK, 9, 10, 11), c("slow", "slow", cell.OK, 1, 2, 3), c("quick", "quick", cell.Noisy, 4, 5, 9),
		c("broken", "broken", cell.Failed, 20, 20, 20), c("absent", "absent", cell.Unavailable),
	}}
}

func TestDuels(t *testing.T) {
	g := group{"plaintext+wisp", "flood", 1, 1}
	b := &bench{done: map[group]*cell.Matrix{g: sample()}}
	for _, tc := range []struct {
		name, theirs string
		against      string
		values       []float64
		err          string
		lacking      bool
	}{
		{"the fastest, noisy or not", "", "quick to quick", []float64{4, 5, 9}, "", false},
		{"one that is named", "slow:slow", "", []float64{1, 2, 3}, "", false},
		{"one that failed", "broken:broken", "", nil, "for a reason", false},
		{"one that cannot run here", "absent:absent", "", nil, "for a reason", true},
		{"one that nobody has heard of", "x:y", "", nil, "no such cell", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := b.duel(t.Context(), duel{g, "muxperf:muxperf", tc.theirs})
			var missing *unavailable
			switch {
			case tc.err == "" && err != nil, tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)), errors.As(err, &missing) != tc.lacking:
				t.Errorf("the error is %v, want %q", err, tc.err)
			case err == nil && (!slices.Equal(s.theirs, tc.values) || !slices.Equal(s.ours, []float64{9, 10, 11}) || s.against != tc.against):
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestChoosing(t *testing.T) {
	for _, tc := range []struct {
		patterns string
		want     int
	}{{"*", len(goals())}, {"raw", 1}, {"noise-*, memory", 5}, {"wisp-flood-*,wisp-flood-1", 2}} {
		if got, err := choose(goals(), tc.patterns); err != nil || len(got) != tc.want {
			t.Errorf("%s leaves %d rows: %v", tc.patterns, len(got), err)
		}
	}
	for _, bad := range []string{"nothing", "[", ""} {
		if got, err := choose(goals(), bad); err == nil {
			t.Errorf("%q leaves %d rows", bad, len(got))
		}
	}
}

func TestCommandLine(t *testing.T) {
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--list"}, &out, io.Discard); err != nil || strings.Count(out.String(), "\n") != len(goals()) {
		t.Errorf("the list is\n%s%v", &out, err)
	}
	for _, args := range [][]string{{"-t", "0"}, {"--reps", "0"}, {"stray"}, {"--only", "nothing"}} {
		if err := command(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
