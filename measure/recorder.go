// Intervals and windows, as differences of snapshots of counters that only grow.
//
// The clock of a run starts with its first payload byte, on any stream. From there the schedule cuts
// it: at the end of the warm-up that is omitted, and then at every interval. A cut reads each meter
// once; an interval is the difference of two cuts, the total is the difference of the last cut and
// the one that ended the warm-up. So intervals add up to the total, the warm-up and the total to the
// whole, and nothing can be negative, whatever the threads do.
//
//	first byte                                                     last byte
//	   |---- omit ----|---- interval ----|---- interval ----|-- rest --|
//	   0              cut                cut                cut        end

package measure

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Schedule says where a run is cut.
type Schedule struct {
	Omit     time.Duration // warm-up, left out of the totals
	Interval time.Duration // 0: no intervals
	Duration time.Duration // measured time that was asked for; 0 if the run ends by bytes
}

// An Interval is what passed between two cuts; times count from the first payload byte.
type Interval struct {
	Start   time.Duration `json:"start_ns"`
	End     time.Duration `json:"end_ns"`
	Bytes   uint64        `json:"bytes"`
	Omitted bool          `json:"omitted,omitempty"`      // part of the warm-up
	Streams []uint64      `json:"stream_bytes,omitempty"` // of each stream; see maxStreamValues
}

// maxStreamValues bounds how many values of single streams the intervals of a run keep: with very many streams,
// or in a very long run, the later intervals have the sum alone.
const maxStreamValues = 64 << 10

// A StreamTotal is one stream's part of the measured window.
type StreamTotal struct {
	Bytes uint64        `json:"bytes"`
	Start time.Duration `json:"start_ns"` // its first byte, from the first byte of all; -1 if it had none
}

// Totals are what a recorder has seen. The whole run is Omit + Window long and moved Omitted + Bytes.
type Totals struct {
	Bytes     uint64        `json:"bytes"`
	Omitted   uint64        `json:"omitted_bytes"`
	Omit      time.Duration `json:"omit_ns"`
	Window    time.Duration `json:"window_ns"`
	Skew      time.Duration `json:"start_skew_ns"` // between the first bytes of the first and the last stream
	Streams   []StreamTotal `json:"streams"`
	Intervals []Interval    `json:"intervals,omitempty"`
}

// Goodput is the rate of the measured window, in bits per second; 0 for an empty one.
func (t Totals) Goodput() float64 { return Rate(t.Bytes, t.Window) }

// Rate is bits per second.
func Rate(bytes uint64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(bytes) * 8 / d.Seconds()
}

// A Recorder cuts the time line of a set of meters.
type Recorder struct {
	clock    Clock
	epoch    time.Time
	schedule Schedule
	meters   []*Meter

	start   atomic.Int64 // as Meter.first: the first byte of all
	started chan struct{}

	mu        sync.Mutex
	cutAt     time.Duration // the last cut, from the start
	cutBytes  uint64        // the sum of all meters at it
	cutEach   []uint64      // each meter at it
	values    int           // of single streams that the intervals keep
	omitBytes []uint64      // each meter at the end of the warm-up; nil before it
	omitEnd   time.Duration
	intervals []Interval
	stopped   bool
	each      func(Interval) // who watches
	shown     int            // how many intervals he has seen
	totals    *Totals        // what Stop has returned
}

// NewRecorder makes a recorder with n meters.
func NewRecorder(clock Clock, s Schedule, n int) *Recorder {
	r := &Recorder{clock: clock, epoch: clock(), schedule: s, started: make(chan struct{})}
	backing := make([]Meter, n)
	r.meters = make([]*Meter, n)
	for i := range backing {
		backing[i].recorder = r
		r.meters[i] = &backing[i]
	}
	if s.Omit <= 0 {
		r.omitBytes = make([]uint64, n)
	}
	return r
}

// Meter returns the i-th meter.
func (r *Recorder) Meter(i int) *Meter { return r.meters[i] }

// Started is closed when the first payload byte has passed.
func (r *Recorder) Started() <-chan struct{} { return r.started }

// begin notes the first byte of all.
func (r *Recorder) begin(at int64) {
	if r.start.CompareAndSwap(0, at) {
		close(r.started)
	}
}

// Elapsed is the time since the first payload byte; 0 before it.
func (r *Recorder) Elapsed() time.Duration {
	start := r.start.Load()
	if start == 0 {
		return 0
	}
	return r.clock().Sub(r.epoch) + 1 - time.Duration(start)
}

// Bytes is the sum of all meters now.
func (r *Recorder) Bytes() uint64 {
	var sum uint64
	for _, m := range r.meters {
		sum += m.bytes.Load()
	}
	return sum
}

// Run cuts the time line as scheduled until ctx is done; each (if not nil) sees every interval, the last
// ones when Stop is called after Run has returned.
func (r *Recorder) Run(ctx context.Context, each func(Interval)) {
	r.mu.Lock()
	r.each = each
	r.mu.Unlock()
	select {
	case <-r.started:
	case <-ctx.Done():
		return
	}
	for {
		next, ok := r.nextCut()
		if !ok {
			return
		}
		timer := time.NewTimer(next - r.Elapsed())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if iv, ok := r.cut(); ok {
			r.show(iv)
		}
	}
}

// show lets the watcher see one more interval.
func (r *Recorder) show(iv Interval) {
	r.mu.Lock()
	each := r.each
	r.shown++
	r.mu.Unlock()
	if each != nil {
		each(iv)
	}
}

// nextCut is when the next cut is due; false if there is none.
func (r *Recorder) nextCut() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.omitBytes == nil {
		if r.schedule.Interval <= 0 {
			return r.schedule.Omit, true
		}
		return min(r.schedule.Omit, r.after(0)), true
	}
	if r.schedule.Interval <= 0 {
		return 0, false
	}
	return r.after(r.omitEnd), true
}

// after is the first multiple of the interval, counted from base, that lies after the last cut. A
// cut that came late by more than half an interval does not make up for the ones it missed.
func (r *Recorder) after(base time.Duration) time.Duration {
	step := r.schedule.Interval
	n := (r.cutAt - base + step/2) / step
	return base + (n+1)*step
}

// cut reads every meter and returns the interval that ends now; false if intervals are off.
func (r *Recorder) cut() (Interval, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return Interval{}, false
	}
	at := r.Elapsed()
	each, sum := r.read()
	iv := Interval{Start: r.cutAt, End: at, Bytes: sum - r.cutBytes, Omitted: r.omitBytes == nil, Streams: r.sinceCut(each)}
	if r.omitBytes == nil && at >= r.schedule.Omit {
		r.omitBytes, r.omitEnd = each, at
	}
	r.cutAt, r.cutBytes, r.cutEach = at, sum, each
	if r.schedule.Interval <= 0 {
		return Interval{}, false
	}
	r.intervals = append(r.intervals, iv)
	return iv, true
}

// read reads every meter once.
func (r *Recorder) read() (each []uint64, sum uint64) {
	each = make([]uint64, len(r.meters))
	for i, m := range r.meters {
		each[i] = m.bytes.Load()
		sum += each[i]
	}
	return each, sum
}

// sinceCut is what each stream has moved since the last cut; nil for one stream, whose part is the whole, and
// where no more is kept.
func (r *Recorder) sinceCut(each []uint64) []uint64 {
	if len(each) == 1 || r.schedule.Interval <= 0 || r.values+len(each) > maxStreamValues {
		return nil
	}
	r.values += len(each)
	out := slices.Clone(each)
	for i, before := range r.cutEach {
		out[i] -= before
	}
	return out
}

// Stop ends the recording and returns the totals. The window ends with the last byte; a run that
// was to last for a time and did (complete) is not shorter than that time, so that a silence at its
// end counts. Further calls return the same.
func (r *Recorder) Stop(complete bool) Totals {
	t := r.stop(complete)
	for _, iv := range t.Intervals[min(r.shown, len(t.Intervals)):] {
		r.show(iv)
	}
	return t
}

func (r *Recorder) stop(complete bool) Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.totals != nil {
		return *r.totals
	}
	end := r.lastByte()
	if complete && r.schedule.Duration > 0 && r.start.Load() != 0 {
		end = max(end, r.schedule.Omit+r.schedule.Duration)
	}
	end = max(end, r.omitEnd) // a warm-up that never ended leaves an empty window
	t := Totals{Streams: make([]StreamTotal, len(r.meters))}
	each, sum := r.read()
	for i, m := range r.meters {
		n := each[i]
		before := n
		if r.omitBytes != nil {
			before = r.omitBytes[i]
		}
		t.Streams[i] = StreamTotal{Bytes: n - before, Start: r.startOf(m)}
		t.Bytes += n - before
		t.Skew = max(t.Skew, t.Streams[i].Start)
	}
	t.Omitted = sum - t.Bytes
	t.Omit, t.Window = r.omitEnd, end-r.omitEnd
	if r.omitBytes == nil {
		t.Omit, t.Window = end, 0
	}
	r.finishIntervals(end, each, sum)
	t.Intervals = append([]Interval(nil), r.intervals...)
	r.totals = &t
	return t
}

// finishIntervals adds what came after the last cut. A piece too short to stand alone is joined to
// the interval before it, unless that belongs to the warm-up.
func (r *Recorder) finishIntervals(end time.Duration, each []uint64, sum uint64) {
	defer func() { r.stopped = true }()
	if r.schedule.Interval <= 0 || r.stopped || end <= r.cutAt && sum == r.cutBytes {
		return
	}
	before := r.cutEach
	if before == nil {
		before = make([]uint64, len(each))
	}
	rest := Interval{Start: r.cutAt, End: max(end, r.cutAt), Bytes: sum - r.cutBytes, Omitted: r.omitBytes == nil, Streams: r.sinceCut(each)}
	r.cutAt, r.cutBytes, r.cutEach = rest.End, sum, each
	if n := len(r.intervals); n > 0 && rest.End-rest.Start < r.schedule.Interval/10 && r.intervals[n-1].Omitted == rest.Omitted {
		r.intervals[n-1].End = rest.End
		r.intervals[n-1].Bytes += rest.Bytes
		for i := range r.intervals[n-1].Streams {
			r.intervals[n-1].Streams[i] += r.cutEach[i] - before[i]
		}
		return
	}
	r.intervals = append(r.intervals, rest)
}

// lastByte is when the last byte of all passed, from the start.
func (r *Recorder) lastByte() time.Duration {
	var last int64
	for _, m := range r.meters {
		last = max(last, m.last.Load())
	}
	if last == 0 {
		return 0
	}
	return time.Duration(last - r.start.Load())
}

// startOf is when a meter's first byte passed, from the start; -1 if it has none.
func (r *Recorder) startOf(m *Meter) time.Duration {
	first := m.first.Load()
	if first == 0 {
		return -1
	}
	return max(0, time.Duration(first-r.start.Load()))
}
