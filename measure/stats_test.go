package measure

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestMeanMedianAndJain(t *testing.T) {
	if s := Mean([]float64{9, 10, 11}, 0.95); math.Abs(s.Center-10) > 1e-9 || math.Abs(s.High-12.484) > 0.01 {
		t.Errorf("the mean of 9, 10, 11 is %+v, want 10 and up to 12.48", s)
	}
	for _, values := range [][]float64{nil, {5}, {5, 5}} {
		for name, s := range map[string]Summary{"mean": Mean(values, 0.95), "median": Median(values, 0.95)} {
			if _, err := json.Marshal(s); err != nil {
				t.Errorf("the %s of %v cannot be written as JSON: %v", name, values, err)
			}
		}
	}
	if s := Median([]float64{3, 1, 2}, 0.95); s.Center != 2 || s.Low != 1 || s.High != 3 {
		t.Errorf("the median of 3, 1, 2 is %+v", s)
	}
	for _, tc := range []struct {
		shares []float64
		want   float64
	}{{[]float64{1, 1, 1}, 1}, {[]float64{1, 0, 0, 0}, 0.25}, {nil, 1}} {
		if got := Jain(tc.shares); got != tc.want {
			t.Errorf("Jain of %v is %v, want %v", tc.shares, got, tc.want)
		}
	}
}

func TestHistogramMerges(t *testing.T) {
	a, b := NewHistogram(), NewHistogram()
	for i := range 1000 {
		a.Record(time.Duration(i+1) * time.Microsecond)
		b.Record(time.Second)
	}
	a.Merge(b)
	d := a.Distribution()
	var bars int64
	for _, bar := range d.Bars {
		bars += bar.Count
	}
	if d.Count != 2000 || bars != 2000 || d.P50 > 1001*time.Microsecond || d.P90 < 999*time.Millisecond {
		t.Errorf("%+v", d)
	}
}

// TestStopTwice: what comes after the first Stop changes nothing.
func TestStopTwice(t *testing.T) {
	r := NewRecorder(time.Now, Schedule{Interval: time.Second}, 1)
	r.Meter(0).Add(100)
	first := r.Stop(false)
	r.Meter(0).Add(1000)
	if again := r.Stop(false); again.Bytes != first.Bytes || len(again.Intervals) != len(first.Intervals) {
		t.Errorf("%+v, then %+v", first, again)
	}
}
