// Comparing: a cell with its copy, and a matrix with an older one.

package cell

import (
	"golang.org/x/perf/benchmath"

	"muxperf/measure"
)

// significance is the p-value below which a difference is believed.
const significance = 0.05

// A Verdict says what two measurements of a cell show.
type Verdict string

// The verdicts.
const (
	Faster  Verdict = "faster"
	Slower  Verdict = "slower"
	Tie     Verdict = "a tie"
	TooFew  Verdict = "too few repetitions to tell"
	Added   Verdict = "only in the newer one"
	Lost    Verdict = "lost" // it had a number, and has none now
	Neither Verdict = "no number in either"
	Gained  Verdict = "a number for the first time"
)

// A Comparison is one cell in two matrices.
type Comparison struct {
	Key
	Old, New float64 // medians, bits per second; 0 where there is none
	Ratio    float64 // new by old; 0 where there is none
	P        float64 // of the Mann-Whitney U test; 1 if there is nothing to test
	Verdict  Verdict
	Note     string // the states, where a number is missing
}

// Loss is how much of the cell's goodput is gone, as a share: 0.1 if it is certainly 10 % slower, 1 if it
// has no number any more, and 0 for whatever the repetitions do not prove.
func (c Comparison) Loss() float64 {
	switch c.Verdict {
	case Lost:
		return 1
	case Slower:
		return 1 - c.Ratio
	}
	return 0
}

// Test compares two samples without assuming how they are distributed.
func Test(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	t := &benchmath.DefaultThresholds
	return benchmath.AssumeNothing.Compare(benchmath.NewSample(a, t), benchmath.NewSample(b, t)).P
}

// canTell reports whether samples of these sizes can show a difference at all: the least p of the test is
// that of two samples which do not overlap, 2 in (a+b choose a).
func canTell(a, b int) bool {
	arrangements := 1.0
	for i := 1; i <= a; i++ {
		arrangements *= float64(b+i) / float64(i)
	}
	return 2/arrangements < significance
}

// Compare compares the cells of two matrices: those of the newer one in its order, then those that only the
// older one has.
func Compare(old, now *Matrix) []Comparison {
	var out []Comparison
	for _, c := range now.Cells {
		if c.Copy == 0 {
			out = append(out, compare(c.Key, old.Find(c.Key), c))
		}
	}
	for _, c := range old.Cells {
		if c.Copy == 0 && now.Find(c.Key) == nil {
			out = append(out, compare(c.Key, c, nil))
		}
	}
	return out
}

// compare compares one cell; nil is a cell that the matrix does not have.
func compare(k Key, before, after *Cell) Comparison {
	c := Comparison{Key: k, P: 1}
	had, has := before.measured(), after.measured()
	if had {
		c.Old = before.Median
	}
	if has {
		c.New = after.Median
	}
	if !had || !has {
		c.Note = before.state() + " before, " + after.state() + " now"
	}
	switch {
	case before == nil:
		c.Verdict = Added
	case had && !has:
		c.Verdict = Lost
	case !had && !has:
		c.Verdict = Neither
	case !had:
		c.Verdict = Gained
	default:
		c.Ratio = after.Median / before.Median
		c.P = Test(before.Rates(), after.Rates())
		c.Verdict = verdict(c, len(before.Rates()), len(after.Rates()))
	}
	return c
}

func verdict(c Comparison, before, after int) Verdict {
	switch {
	case !canTell(before, after):
		return TooFew
	case c.P >= significance:
		return Tie
	case c.Ratio > 1:
		return Faster
	}
	return Slower
}

// measured reports whether a cell has a number that counts: a cell of which a repetition failed has none.
func (c *Cell) measured() bool { return c != nil && !c.State.Bad() && len(c.Rates()) > 0 }

func (c *Cell) state() string {
	if c == nil {
		return "absent"
	}
	return string(c.State)
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
