// Repetitions: when there are enough, what is said when there never were, and what is left when one fails.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"muxperf/cli"
	"muxperf/measure"
	"muxperf/report"
)

func TestParseGoal(t *testing.T) {
	for _, tc := range []struct {
		text string
		want goal // the zero goal is refused
	}{
		{"95,5", goal{0.95, 0.05}},
		{"99.9,0.5", goal{0.999, 0.005}},
		{"50,100", goal{0.5, 1}},
		{"", goal{}}, {"95", goal{}}, {"95,", goal{}}, {",5", goal{}}, {"95;5", goal{}}, {"95,5,1", goal{}}, {"high,low", goal{}},
		{"100,5", goal{}}, {"49,5", goal{}}, {"95,0", goal{}}, {"95,-5", goal{}}, {"95,101", goal{}}, {"NaN,5", goal{}}, {"95,NaN", goal{}},
	} {
		got, err := parseGoal(tc.text)
		near := func(a, b float64) bool { return a-b < 1e-12 && b-a < 1e-12 }
		if !near(got.level, tc.want.level) || !near(got.width, tc.want.width) || (err == nil) != (tc.want.level > 0) {
			t.Errorf("%q: %+v, %v", tc.text, got, err)
		}
		var usage *cli.UsageError
		if err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), "such as 95,5")) {
			t.Errorf("%q: %v", tc.text, err)
		}
	}
}

// alternating is a measurement that swings about 100 by so much.
func alternating(swing float64) func(i int) float64 {
	return func(i int) float64 {
		if i%2 == 0 {
			return 100 + swing
		}
		return 100 - swing
	}
}

func TestSummarise(t *testing.T) {
	steady := alternating(0)
	for _, tc := range []struct {
		name    string
		want    goal
		reps    int
		value   func(i int) float64
		runs    int
		reached bool
	}{
		{"one", goal{}, 1, steady, 1, true},
		{"a number", goal{}, 5, alternating(90), 5, true},
		{"steady", goal{0.95, 0.05}, 1, steady, 3, true},
		{"steady, but more are wanted", goal{0.95, 0.05}, 7, steady, 7, true},
		{"more than the most", goal{0.95, 0.05}, 50, steady, 50, true},
		{"narrow after a while", goal{0.95, 0.05}, 1, alternating(5), 19, true},
		{"never narrow", goal{0.95, 0.05}, 1, alternating(50), 30, false},
		{"never narrow, and more are wanted", goal{0.95, 0.05}, 40, alternating(50), 40, false},
		{"nothing but zeros", goal{0.95, 0.05}, 1, func(int) float64 { return 0 }, 30, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := report.Repetitions{Level: 0.95, Reached: true}
			var measured []float64
			for i := 0; ; i++ {
				measured = append(measured, tc.value(i))
				p.Values = append(p.Values, tc.value(i))
				if summarise(&p, tc.want, tc.reps) {
					break
				}
				if i > 100 {
					t.Fatal("it never ends")
				}
			}
			if len(p.Values) != tc.runs || p.Reached != tc.reached || p.Wanted != tc.want.width {
				t.Errorf("%d runs, reached %t; want %d, %t: %+v", len(p.Values), p.Reached, tc.runs, tc.reached, p)
			}
			if !slices.Equal(p.Values, measured) {
				t.Errorf("the values are not in the order in which they were measured: %v", p.Values)
			}
			if p.Low > p.Center || p.Center > p.High {
				t.Errorf("%g is not within %g to %g", p.Center, p.Low, p.High)
			}
			// The verdict is what the interval says.
			if s := (measure.Summary{Center: p.Center, Low: p.Low, High: p.High}); tc.want.level > 0 && (s.Width() <= tc.want.width) != tc.reached {
				t.Errorf("a width of %g, and reached is %t", s.Width(), tc.reached)
			}
			// So is what people read.
			var text strings.Builder
			r, err := report.New(report.Text, &text, report.Options{Format: "a", Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			p.Unit = "transactions/s"
			r.End(&report.Result{Latency: &report.Latency{}, Repetitions: &p})
			if loud := strings.Contains(text.String(), "!!!") && strings.Contains(text.String(), "NOT reached"); loud == tc.reached {
				t.Errorf("reached is %t, and this is said:\n%s", tc.reached, text.String())
			}
			if want := fmt.Sprintf("%d runs: ", tc.runs); !strings.Contains(text.String(), want) {
				t.Errorf("%q is missing:\n%s", want, text.String())
			}
		})
	}
}

func TestFigure(t *testing.T) {
	d := func(bytes uint64) report.Direction {
		return report.Direction{MeasuredAt: "receiver", Receiver: &report.Side{Totals: measure.Totals{Bytes: bytes, Window: time.Second}}}
	}
	for _, tc := range []struct {
		res  report.Result
		want float64
		unit string
	}{
		{report.Result{Latency: &report.Latency{PerSecond: 12}}, 12, "transactions/s"},
		{report.Result{Hold: &report.HoldResult{PerSecond: 13}}, 13, "connections/s"},
		{report.Result{Directions: []report.Direction{d(100)}}, 800, "bit/s"},
		{report.Result{Directions: []report.Direction{d(100), d(50)}}, 1200, "bit/s"},
		{report.Result{}, 0, "bit/s"},
	} {
		if got, unit := figure(&tc.res); got != tc.want || unit != tc.unit {
			t.Errorf("%+v: %g %s, want %g %s", tc.res, got, unit, tc.want, tc.unit)
		}
	}
}

// TestConfidenceOfRealRuns: an interval so narrow that no machine reaches it takes every run there may be, and
// says loudly that it was missed; in a number of runs nothing is said about a goal.
func TestConfidenceOfRealRuns(t *testing.T) {
	echo := serveTestee(t, "127.0.0.1:0")
	rr := []string{"--no-control", "--test", "rr", "-n", "20"}
	out, said, code := says(append(rr, "--confidence", "99.9,0.001", echo)...)
	if code != 0 || !strings.Contains(out, "30 runs: mean ") || !strings.Contains(out, "!!! The confidence that was asked for (width 0.0 %) was NOT reached") {
		t.Errorf("exit code %d:\n%s%s", code, out, said)
	}
	out, said, code = says(append(rr, "--reps", "4", echo)...)
	if code != 0 || !strings.Contains(out, "4 runs: median ") || strings.Contains(out, "!!!") {
		t.Errorf("exit code %d:\n%s%s", code, out, said)
	}
	if n := strings.Count(out, "20 round trips in"); n != 4 {
		t.Errorf("%d of 4 runs were shown:\n%s", n, out)
	}
	out, said, code = says(append(rr, "--confidence", "99.9,0.001", "-J", echo)...)
	var res report.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v:\n%s%s", code, err, out, said)
	}
	if p := res.Repetitions; p == nil || p.Reached || len(p.Values) != 30 || math.Abs(p.Level-0.999) > 1e-9 || p.Unit != "transactions/s" {
		t.Errorf("%+v", p)
	}
}

// TestARepetitionFails: the runs before it are in the result, and the exit code is its own.
func TestARepetitionFails(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // an echo server for two connections
		for range 2 {
			if conn, err := l.Accept(); err == nil {
				io.Copy(conn, conn)
				conn.Close()
			}
		}
		l.Close()
	}()
	out, said, code := says("--no-control", "--test", "crr", "-n", "1", "--reps", "5", "-J", l.Addr().String())
	var res report.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatalf("%v:\n%s%s", err, out, said)
	}
	if code == 0 || res.Complete || res.Error == nil || res.Repetitions == nil || len(res.Repetitions.Values) != 2 {
		t.Errorf("exit code %d, complete %t, %+v, error %v", code, res.Complete, res.Repetitions, res.Error)
	}
}

// TestInterrupted: the reason for the end is the exit code's, also between runs.
func TestInterrupted(t *testing.T) {
	echo := serveTestee(t, "127.0.0.1:0")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("enough"))
	defer cancel()
	var out, errs strings.Builder
	err := test(ctx, []string{"--no-control", "--test", "rr", "-n", "10", "--reps", "1000", "-i", "0", echo}, &out, &errs)
	if long := strings.Contains(out.String(), "1000 runs"); err == nil && !long {
		t.Errorf("it went on after its end:\n%s", out.String())
	} else if err != nil && !strings.Contains(err.Error(), "enough") {
		t.Errorf("it ended with %v", err)
	}
}
