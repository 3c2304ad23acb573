// Latency distributions, on HDR histograms: three significant digits from a nanosecond to an hour, in a
// bounded amount of memory. Histograms are merged; percentiles are never averaged.

package measure

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	lowest  = 1
	highest = int64(time.Hour)
	figures = 3
)

// A Histogram collects durations. It is safe for concurrent use.
type Histogram struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

// NewHistogram makes an empty one.
func NewHistogram() *Histogram { return &Histogram{h: hdrhistogram.New(lowest, highest, figures)} }

// Record adds one duration; what is beyond an hour counts as an hour.
func (h *Histogram) Record(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.h.RecordValue(min(max(int64(d), lowest), highest)) // cannot fail within the bounds
}

// Merge adds all of other.
func (h *Histogram) Merge(other *Histogram) {
	other.mu.Lock()
	snapshot := other.h.Export()
	other.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.h.Merge(hdrhistogram.Import(snapshot))
}

// A Distribution is a histogram in figures, in nanoseconds.
type Distribution struct {
	Count int64         `json:"count"`
	Min   time.Duration `json:"min_ns"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
	Stdev time.Duration `json:"stdev_ns"`
	Bars  []Bar         `json:"histogram,omitempty"`
}

// A Bar is one bucket of the histogram as it is drawn: durations above From, up to To.
type Bar struct {
	From  time.Duration `json:"from_ns"`
	To    time.Duration `json:"to_ns"`
	Count int64         `json:"count"`
}

// Distribution gives the figures.
func (h *Histogram) Distribution() Distribution {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := func(p float64) time.Duration { return time.Duration(h.h.ValueAtQuantile(p)) }
	d := Distribution{Count: h.h.TotalCount()}
	if d.Count == 0 {
		return d
	}
	d.Min, d.Max = time.Duration(h.h.Min()), time.Duration(h.h.Max())
	d.Mean, d.Stdev = time.Duration(h.h.Mean()), time.Duration(h.h.StdDev())
	d.P50, d.P90, d.P99, d.P999 = q(50), q(90), q(99), q(99.9)
	d.Bars = bars(h.h)
	return d
}

// bars sums the fine buckets into ten for each power of ten, from the first to the last that is not
// empty: few enough to draw, fine enough to see two modes.
func bars(h *hdrhistogram.Histogram) []Bar {
	var out []Bar
	for _, b := range h.Distribution() {
		if b.Count == 0 {
			continue
		}
		from, to := decade(b.To)
		if n := len(out); n > 0 && out[n-1].From == from {
			out[n-1].Count += b.Count
			continue
		}
		for len(out) > 0 && out[len(out)-1].To < from { // empty ones between
			f, t := decade(int64(out[len(out)-1].To) + 1)
			out = append(out, Bar{f, t, 0})
		}
		out = append(out, Bar{from, to, b.Count})
	}
	return out
}

// decade finds the bar that v belongs to: a tenth of its power of ten.
func decade(v int64) (from, to time.Duration) {
	step := int64(1)
	for v > 10*step {
		step *= 10
	}
	f := (v - 1) / step * step
	return time.Duration(f), time.Duration(f + step)
}
