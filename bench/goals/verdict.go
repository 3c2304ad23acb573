// What samples say about a goal.

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"muxperf/measure"
)

// samples are what the rounds gave: the same index is the same round. Without theirs the goal is about the
// values themselves.
type samples struct {
	ours, theirs []float64
	unit         string
	against      string // what it turned out to be, where the row leaves that open
}

// An unavailable says what a row needs and this machine has not.
type unavailable struct{ reason string }

func (u *unavailable) Error() string { return u.reason }

// ratio is that of the medians, with its interval; see the command's comment.
func (s samples) ratio() (measure.Summary, error) {
	if len(s.ours) == 0 || s.theirs != nil && len(s.theirs) != len(s.ours) {
		return measure.Summary{}, fmt.Errorf("%d values against %d", len(s.ours), len(s.theirs))
	}
	if s.theirs == nil {
		return measure.Median(s.ours, 0.95), nil
	}
	rounds := slices.Clone(s.ours)
	for i, v := range s.theirs {
		if v <= 0 {
			return measure.Summary{}, fmt.Errorf("the yardstick measured %g", v)
		}
		rounds[i] /= v
	}
	out := measure.Median(rounds, 0.95)
	out.Center = center(s.ours) / center(s.theirs)
	out.Low, out.High = min(out.Low, out.Center), max(out.High, out.Center)
	return out, nil
}

func center(values []float64) float64 { return measure.Median(values, 0.95).Center }

// enough is how many rounds it takes to decide: the range of five holds the median with 94 %, that of two with
// a half.
const enough = 5

// reached decides; see the command's comment.
func (g goal) reached(r measure.Summary, rounds int) string {
	if rounds < enough {
		return fmt.Sprintf("undecided (%d rounds tell nothing, %d may)", rounds, enough)
	}
	met := func(v float64) bool {
		if g.atMost {
			return v <= g.want
		}
		return v >= g.want
	}
	switch low, high := met(r.Low), met(r.High); {
	case low && high:
		return "yes"
	case low || high:
		return "undecided"
	}
	return "no"
}

// wanted is the goal in words.
func (g goal) wanted() string {
	if g.atMost {
		return fmt.Sprintf("at most %.4g", g.want)
	}
	return fmt.Sprintf("at least %.4g", g.want)
}

// row is the line of the table.
func (g goal) row(s samples, err error) string {
	against := g.against
	if s.against != "" {
		against = s.against
	}
	var r measure.Summary
	if err == nil {
		r, err = s.ratio()
	}
	var missing *unavailable
	switch {
	case errors.As(err, &missing):
		return line(g.name, g.what, against, "", "", "", "", g.wanted(), "unavailable ("+missing.reason+")")
	case err != nil:
		return line(g.name, g.what, against, "", "", "", "", g.wanted(), "failed ("+err.Error()+")")
	}
	theirs := ""
	if s.theirs != nil {
		theirs = fmt.Sprintf("%.4g %s", center(s.theirs), s.unit)
	}
	return line(g.name, g.what, against, fmt.Sprintf("%.4g %s", center(s.ours), s.unit), theirs, fmt.Sprintf("%.3g", r.Center),
		fmt.Sprintf("%.3g to %.3g", r.Low, r.High), g.wanted(), g.reached(r, len(s.ours)))
}

// line joins cells; what would end a cell or the line does not get into one.
func line(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", "/")
	}
	return "| " + strings.Join(cells, " | ") + " |"
}
