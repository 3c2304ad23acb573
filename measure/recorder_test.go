package measure

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestIntervalsSumToTheTotal drives recorders with random schedules and random traffic on fake time.
func TestIntervalsSumToTheTotal(t *testing.T) {
	for seed := range uint64(40) {
		for _, streams := range []int{1, 64} {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(streams)))
				s := Schedule{
					Omit:     time.Duration(rng.IntN(4)) * 700 * time.Millisecond,
					Interval: time.Duration(rng.IntN(5)) * 250 * time.Millisecond,
					Duration: time.Duration(1+rng.IntN(5)) * time.Second,
				}
				check(t, s, streams, rng)
			})
		}
	}
}

func check(t *testing.T, s Schedule, streams int, rng *rand.Rand) {
	r := NewRecorder(time.Now, s, streams)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var seen []Interval
	wg.Go(func() { r.Run(ctx, func(iv Interval) { seen = append(seen, iv) }) })
	var whole uint64
	var mu sync.Mutex
	stop := time.Now().Add(s.Omit + s.Duration)
	for i := range streams {
		seed := rng.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 0))
			for time.Now().Before(stop) {
				n := 1 + rng.IntN(1<<17)
				r.Meter(i).Add(n)
				mu.Lock()
				whole += uint64(n)
				mu.Unlock()
				time.Sleep(time.Duration(1+rng.IntN(40)) * time.Millisecond)
			}
		})
	}
	time.Sleep(s.Omit + s.Duration + 50*time.Millisecond)
	cancel()
	wg.Wait()
	got := r.Stop(true)

	if got.Bytes+got.Omitted != whole {
		t.Errorf("%+v: measured %d and omitted %d of %d bytes", s, got.Bytes, got.Omitted, whole)
	}
	var inIntervals, omitted, inStreams uint64
	last := time.Duration(0)
	for _, iv := range got.Intervals {
		if iv.Start != last || iv.End <= iv.Start {
			t.Errorf("%+v: interval %v to %v follows %v", s, iv.Start, iv.End, last)
		}
		last = iv.End
		var each uint64
		for _, n := range iv.Streams {
			each += n
		}
		if streams > 1 && (len(iv.Streams) != streams || each != iv.Bytes) {
			t.Errorf("%+v: %d streams moved %d bytes of the %d of an interval", s, len(iv.Streams), each, iv.Bytes)
		}
		if iv.Omitted {
			omitted += iv.Bytes
		} else {
			inIntervals += iv.Bytes
		}
	}
	if s.Interval > 0 && (inIntervals != got.Bytes || omitted != got.Omitted || last != got.Omit+got.Window) {
		t.Errorf("%+v: intervals hold %d+%d bytes up to %v, totals %d+%d up to %v",
			s, omitted, inIntervals, last, got.Omitted, got.Bytes, got.Omit+got.Window)
	}
	if len(seen) != len(got.Intervals) {
		t.Errorf("%+v: %d intervals were shown live, %d are in the totals", s, len(seen), len(got.Intervals))
	}
	for _, st := range got.Streams {
		inStreams += st.Bytes
		if st.Start < 0 || st.Start > got.Skew {
			t.Errorf("%+v: a stream started at %v, the skew is %v", s, st.Start, got.Skew)
		}
	}
	if inStreams != got.Bytes {
		t.Errorf("%+v: streams hold %d of %d bytes", s, inStreams, got.Bytes)
	}
	if got.Omit != s.Omit || got.Window < s.Duration {
		t.Errorf("%+v: omitted %v and measured %v", s, got.Omit, got.Window)
	}
}

// TestKnownRate: 1000 bytes every millisecond are 8 Mbit/s, on every interval.
func TestKnownRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(time.Now, Schedule{Omit: time.Second, Interval: time.Second, Duration: 3 * time.Second}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go r.Run(ctx, nil)
		for range 4000 {
			r.Meter(0).Add(1000)
			time.Sleep(time.Millisecond)
		}
		cancel()
		synctest.Wait()
		got := r.Stop(true)
		if got.Window != 3*time.Second || got.Goodput() < 7.99e6 || got.Goodput() > 8.01e6 {
			t.Errorf("%v at %.0f bit/s, want 3s at 8000000", got.Window, got.Goodput())
		}
		if len(got.Intervals) != 4 {
			t.Fatalf("%d intervals, want 4: %v", len(got.Intervals), got.Intervals)
		}
		for _, iv := range got.Intervals {
			if iv.Bytes < 999_000 || iv.Bytes > 1_001_000 || iv.Omitted != (iv.End <= time.Second) {
				t.Errorf("interval %+v", iv)
			}
		}
	})
}

// TestSilence: a stall at the end of a complete run counts as time; of one that was cut short it
// does not.
func TestSilence(t *testing.T) {
	for _, tc := range []struct {
		complete bool
		want     time.Duration
	}{{true, 10 * time.Second}, {false, 4 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRecorder(time.Now, Schedule{Interval: time.Second, Duration: 10 * time.Second}, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go r.Run(ctx, nil)
			for range 5 {
				r.Meter(0).Add(100)
				time.Sleep(time.Second)
			}
			time.Sleep(5 * time.Second)
			cancel()
			synctest.Wait()
			if got := r.Stop(tc.complete); got.Window != tc.want || got.Bytes != 500 {
				t.Errorf("complete %t: %d bytes in %v, want 500 in %v", tc.complete, got.Bytes, got.Window, tc.want)
			}
		})
	}
}

func TestNothingArrived(t *testing.T) {
	r := NewRecorder(time.Now, Schedule{Omit: time.Second, Interval: time.Second, Duration: time.Second}, 2)
	got := r.Stop(true)
	if got.Bytes != 0 || got.Window != 0 || got.Goodput() != 0 || len(got.Intervals) != 0 || got.Streams[0].Start != -1 {
		t.Errorf("nothing arrived, and yet %+v", got)
	}
}

func TestPacerKeepsTheRate(t *testing.T) {
	for _, block := range []int{1, 1000, 128 << 10} {
		synctest.Test(t, func(t *testing.T) {
			const rate = 80e6 // bits per second
			p := NewPacer(time.Now, rate)
			start := time.Now()
			var sent float64
			for time.Since(start) < 2*time.Second {
				if d := p.Take(block); d > 0 {
					time.Sleep(d)
				}
				sent += float64(block)
				if block == 1 && sent > 3e5 {
					break
				}
			}
			got := sent * 8 / max(time.Since(start), time.Nanosecond).Seconds()
			slack := 8 * (float64(block) + rate/8*pacerSlack.Seconds()) / time.Since(start).Seconds()
			if got < rate*0.999 || got > rate+slack*1.001 {
				t.Errorf("blocks of %d: %.0f bit/s, want %.0f to %.0f", block, got, rate, rate+slack)
			}
		})
	}
}
