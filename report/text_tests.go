// The text form of the tests that count transactions and connections.

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muxperf/measure"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// latency writes the rate and the distribution.
func (t *text) latency(r *Result) {
	l := r.Latency
	what := map[string]string{RR: "round trips", CRR: "connections", Open: "streams"}[r.Test]
	t.line("%s %s in %s: %s/s (%s loop)", Count(l.Corrected.Count), what, Time(l.Window), digits(l.PerSecond), l.Loop)
	t.line("%-14s %9s %9s %9s %9s %9s %9s %9s %9s", "Latency", "min", "mean", "p50", "p90", "p99", "p99.9", "max", "stdev")
	t.distribution("", l.Corrected)
	if l.Uncorrected != nil {
		t.distribution("from sending", *l.Uncorrected)
	}
	if l.FirstByte != nil {
		t.distribution("first byte", *l.FirstByte)
	}
	if t.o.Histogram {
		t.bars(l.Corrected.Bars)
	}
}

func (t *text) distribution(name string, d measure.Distribution) {
	cells := make([]any, 0, 9)
	cells = append(cells, name)
	for _, v := range []time.Duration{d.Min, d.Mean, d.P50, d.P90, d.P99, d.P999, d.Max, d.Stdev} {
		cells = append(cells, Time(v))
	}
	t.line("%-14s %9s %9s %9s %9s %9s %9s %9s %9s", cells...)
}

// bars draws the histogram, a bar of at most 50 columns for each bucket. A long gap before an outlier is one line.
func (t *text) bars(bars []measure.Bar) {
	var most int64
	for _, b := range bars {
		most = max(most, b.Count)
	}
	for len(bars) > 0 {
		if gap := slices.IndexFunc(bars, func(b measure.Bar) bool { return b.Count > 0 }); gap > 2 {
			t.line("%9s to %9s %12s", Time(bars[0].From), Time(bars[gap-1].To), "none")
			bars = bars[gap:]
		}
		b := bars[0]
		bars = bars[1:]
		width := int((b.Count*50 + most - 1) / max(1, most))
		t.line("%9s to %9s %12s  %s", Time(b.From), Time(b.To), Count(b.Count), strings.Repeat("#", width))
	}
}

// hold writes what holding connections gave.
func (t *text) hold(h *HoldResult) {
	for _, p := range h.Plan {
		t.line("Plan: %s", p)
	}
	t.line("%s of %s %s established in %s (%s of it configured delay): %s/s",
		Count(int64(h.Established)), Count(int64(h.Asked)), h.What, Time(h.Time), Time(h.Delay), digits(h.PerSecond))
	for _, cause := range sortedKeys(h.Failures) {
		t.line("  %s failed: %s", Count(int64(h.Failures[cause])), cause)
	}
	if h.Connect != nil && h.Connect.Count > 0 {
		t.line("%-14s %9s %9s %9s %9s %9s %9s %9s %9s", "Latency", "min", "mean", "p50", "p90", "p99", "p99.9", "max", "stdev")
		t.distribution("to establish", *h.Connect)
	}
	t.line("%s echoed one message in %s, closed in %s", Count(int64(h.Echoed)), Time(h.EchoTime), Time(h.CloseTime))
	memory := fmt.Sprintf("Memory of each: client %.0f bytes", h.ClientMemory)
	if h.ServerMemory > 0 {
		memory += fmt.Sprintf(", server %.0f bytes", h.ServerMemory)
	}
	t.line("%s", memory)
	if h.ListenDrops > 0 {
		t.line("The accept backlog overflowed %s times; each costs a second: raise --backlog and net.core.somaxconn.", Count(int64(h.ListenDrops)))
	}
}
