// Repetitions: a fixed number, or as many as a confidence needs.

package main

import (
	"context"
	"strconv"
	"strings"

	"muxperf/cli"
	"muxperf/measure"
	"muxperf/report"
)

// maxReps bounds --confidence, as netperf does.
const (
	minReps = 3
	maxReps = 30
)

// A goal is how certain the mean has to be.
type goal struct {
	level float64 // 0.95
	width float64 // full width of the interval as a share of the mean, 0.05
}

// parseGoal reads "95,5".
func parseGoal(s string) (goal, error) {
	level, width, ok := strings.Cut(s, ",")
	l, err1 := strconv.ParseFloat(level, 64)
	w, err2 := strconv.ParseFloat(width, 64)
	if !ok || err1 != nil || err2 != nil || !(l >= 50 && l < 100) || !(w > 0 && w <= 100) { // in this form NaN is refused too
		return goal{}, cli.Errorf("--confidence %s: want LEVEL,WIDTH in percent, such as 95,5", s)
	}
	return goal{l / 100, w / 100}, nil
}

// repeat runs the test as often as was asked for. The result is the last run's, with a summary of all.
func (r *runner) repeat(ctx context.Context) (*report.Result, error) {
	var want goal
	if r.o.confidence != "" {
		var err error
		if want, err = parseGoal(r.o.confidence); err != nil {
			return r.blank(""), err
		}
	}
	if r.o.reps == 1 && want.level == 0 {
		return r.once(ctx)
	}
	reps := report.Repetitions{Level: 0.95, Reached: true}
	for {
		res, err := r.once(ctx)
		if err != nil {
			if len(reps.Values) > 0 {
				res.Repetitions = &reps
			}
			return res, err
		}
		var value float64
		value, reps.Unit = figure(res)
		reps.Values = append(reps.Values, value)
		if summarise(&reps, want, r.o.reps) {
			res.Repetitions = &reps
			return res, nil
		}
		if r.o.output.IsText() {
			r.renderer.End(res)
		}
	}
}

// figure is the number that a test is about.
func figure(res *report.Result) (float64, string) {
	switch {
	case res.Latency != nil:
		return res.Latency.PerSecond, "transactions/s"
	case res.Hold != nil:
		return res.Hold.PerSecond, "connections/s"
	}
	var sum float64
	for _, d := range res.Directions {
		sum += d.Headline().Goodput()
	}
	return sum, "bit/s"
}

// summarise updates the summary and reports whether there are enough values.
func summarise(p *report.Repetitions, want goal, reps int) bool {
	if want.level == 0 {
		s := measure.Median(p.Values, p.Level)
		p.Center, p.Low, p.High = s.Center, s.Low, s.High
		return len(p.Values) >= reps
	}
	s := measure.Mean(p.Values, want.level)
	p.Center, p.Low, p.High, p.Level, p.Wanted = s.Center, s.Low, s.High, want.level, want.width
	p.Reached = len(p.Values) >= minReps && s.Width() <= want.width
	return p.Reached && len(p.Values) >= reps || len(p.Values) >= max(maxReps, reps)
}
