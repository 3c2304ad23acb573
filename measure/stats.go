// Statistics over repetitions.

package measure

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// A Summary is the centre of some values and an interval that holds the true centre with the given
// confidence.
type Summary struct{ Center, Low, High float64 }

// Width is the full width of the interval as a share of the centre.
func (s Summary) Width() float64 {
	if s.Center == 0 {
		return math.Inf(1)
	}
	return (s.High - s.Low) / math.Abs(s.Center)
}

// Median summarises values without assuming how they are distributed (the order statistics of
// benchmath, which benchstat uses). With few values the interval is unbounded; it is then the range.
func Median(values []float64, confidence float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	s := benchmath.AssumeNothing.Summary(sample(values), confidence)
	out := Summary{s.Center, s.Lo, s.Hi}
	for _, v := range values {
		if math.IsInf(s.Lo, 0) {
			out.Low = min(v, either(out.Low, v))
		}
		if math.IsInf(s.Hi, 0) {
			out.High = max(v, either(out.High, v))
		}
	}
	return out
}

// sample copies: benchmath sorts what it is given, and the order of the runs is the caller's.
func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// either replaces an infinity.
func either(v, instead float64) float64 {
	if math.IsInf(v, 0) {
		return instead
	}
	return v
}

// Mean summarises values as if they were normally distributed: Student's t, as netperf's -I does.
func Mean(values []float64, confidence float64) Summary {
	if len(values) < 2 { // an interval without bounds has no place in JSON; callers ask for more values anyway
		return Median(values, confidence)
	}
	s := benchmath.AssumeNormal.Summary(sample(values), confidence)
	return Summary{s.Center, s.Lo, s.Hi}
}

// Jain is Jain's index of fairness of some shares: 1 if they are equal, 1/n if one has everything.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}
