// Comparing: a cell with its copy, and a matrix with an older one.

package cell

import (
	"golang.org/x/perf/benchmath"

	"muxperf/measure"
)

// significance is the p-value below which a difference is believed.
const significance = 0.05

// A Comparison is one cell in two matrices.
type Comparison struct {
	Key
	Old, New    float64 // medians, bits per second
	Ratio       float64 // new by old
	P           float64 // of the Mann-Whitney U test; 1 if there are too few values to tell
	Significant bool
	Note        string // why there is no ratio
}

// Test compares two samples without assuming how they are distributed.
func Test(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	t := &benchmath.DefaultThresholds
	return benchmath.AssumeNothing.Compare(benchmath.NewSample(a, t), benchmath.NewSample(b, t)).P
}

// Compare compares the cells that both matrices have, in the order of the newer one.
func Compare(old, now *Matrix) []Comparison {
	var out []Comparison
	for _, c := range now.Cells {
		if c.Copy > 0 {
			continue
		}
		before := old.Find(c.Key)
		cmp := Comparison{Key: c.Key, New: c.Median, P: 1}
		switch {
		case before == nil:
			cmp.Note = "only in the newer one"
		case len(before.Rates()) == 0 || len(c.Rates()) == 0:
			cmp.Note = string(before.State) + " before, " + string(c.State) + " now"
		default:
			cmp.Old, cmp.Ratio = before.Median, c.Median/before.Median
			cmp.P = Test(before.Rates(), c.Rates())
			cmp.Significant = cmp.P < significance
		}
		out = append(out, cmp)
	}
	return out
}

// Worst is the largest significant loss among comparisons, as a share: 0.1 if a cell got 10 % slower. A
// cell that worked before and does not any more is a loss of 1.
func Worst(old, now *Matrix, all []Comparison) float64 {
	worst := 0.0
	for _, c := range all {
		before, after := old.Find(c.Key), now.Find(c.Key)
		switch {
		case c.Significant:
			worst = max(worst, 1-c.Ratio)
		case before != nil && len(before.Rates()) > 0 && after.State.Bad():
			worst = 1
		}
	}
	return worst
}

// MeasureNoise compares each copied cell with its original.
func (m *Matrix) MeasureNoise() {
	for _, c := range m.Cells {
		if c.Copy == 0 {
			continue
		}
		k := c.Key
		k.Copy = 0
		original := m.Find(k)
		if original == nil || len(original.Rates()) == 0 || len(c.Rates()) == 0 {
			continue
		}
		a, b := measure.Median(original.Rates(), 0.95), measure.Median(c.Rates(), 0.95)
		m.Noise = append(m.Noise, Noise{Of: k, Ratio: b.Center / a.Center, P: Test(original.Rates(), c.Rates())})
	}
}
