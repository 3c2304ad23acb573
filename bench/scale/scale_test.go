// The plan, the files that are written from given points, and one point measured with the real programs.

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"muxperf/bench/internal/ends"
)

// points are some that could have been measured, and one that failed.
func points() []point {
	var out []point
	for i, p := range plan("*") {
		p.goodput, p.cpu, p.client, p.server = 1e9*float64(1+i), 0.5, 20e6, 30e6
		out = append(out, p)
	}
	last := &out[len(out)-1]
	*last = point{axis: last.axis, stack: last.stack, streams: 1, connections: 1, size: last.size, failure: "refused | by, \"the\" peer"}
	return out
}

func TestPlan(t *testing.T) {
	all := plan("*")
	if want := 3 * (5 + 4 + 6); len(all) != want {
		t.Errorf("%d points, want %d", len(all), want)
	}
	for _, p := range plan("connections") {
		if p.axis != "connections" || p.streams != 1 || p.size != block || p.x() != float64(p.connections) {
			t.Errorf("%+v", p)
		}
	}
}

func TestFilesAreWrittenAndReadBack(t *testing.T) {
	dir := t.TempDir()
	want := points()
	if err := write(dir, "the command", want); err != nil {
		t.Fatal(err)
	}
	got, err := readCSV(filepath.Join(dir, "scaling.csv"))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the points have changed on their way through the file: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pictures, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(pictures) != 9 {
		t.Errorf("%d pictures: %v", len(pictures), err)
	}
	for _, p := range pictures {
		wellFormed(t, p)
		if !bytes.Contains(text, []byte("("+filepath.Base(p)+")")) {
			t.Errorf("the README does not show %s", p)
		}
	}
	for _, part := range []string{"the command", `refused \| by`, "scaling.csv"} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("the README lacks %q", part)
		}
	}
}

// wellFormed reads a picture as XML, and looks for numbers that are none.
func wellFormed(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Inf")) {
		t.Errorf("%s has a number that is none", name)
	}
}

func TestAxes(t *testing.T) {
	line := func(v ...[2]float64) []series { return []series{{"a", v}} }
	for _, tc := range []struct {
		name  string
		c     chart
		ticks []float64
	}{
		{"from zero", chart{lines: line([2]float64{1, 3}, [2]float64{10, 16.7})}, []float64{0, 5, 10, 15, 20}},
		{"small", chart{lines: line([2]float64{1, 0.03})}, []float64{0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03}},
		{"powers of ten", chart{logY: true, lines: line([2]float64{1, 0.6}, [2]float64{10, 70})}, []float64{0.1, 1, 10, 100}},
		{"one power of ten", chart{logY: true, lines: line([2]float64{1, 10})}, []float64{10, 100}},
		{"nothing", chart{}, []float64{0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.c.yTicks()
			if !slices.EqualFunc(got, tc.ticks, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("the ticks are %v, want %v", got, tc.ticks)
			}
			y := tc.c.yScale()
			if math.Abs(y(got[0])-bottom) > 1e-6 || math.Abs(y(got[len(got)-1])-top) > 1e-6 {
				t.Errorf("they are drawn from %g to %g", y(got[0]), y(got[len(got)-1]))
			}
		})
	}
	x := chart{lines: line([2]float64{1, 1}, [2]float64{10, 1}, [2]float64{100, 1})}.xScale()
	if a, b := x(10)-x(1), x(100)-x(10); math.Abs(a-b) > 1e-6 || x(1) < left || x(100) > right {
		t.Errorf("x runs over %g, %g, %g", x(1), x(10), x(100))
	}
}

// TestPointsAreMeasured: a point with figures, and one of which the server grants less. What the figures are
// worth is the programs' concern.
func TestPointsAreMeasured(t *testing.T) {
	dir := t.TempDir()
	if err := ends.Build(t.Context(), ".", dir, "muxperf/client", "muxperf/server"); err != nil {
		t.Fatal(err)
	}
	c := config{seconds: 0.2, reps: 2, limit: 5 * time.Minute}
	p, err := c.point(t.Context(), dir, point{axis: "streams", stack: "plaintext+wisp", streams: 3, connections: 1, size: 4 << 10})
	if err != nil || p.failure != "" || p.goodput <= 0 || p.cpu <= 0 || runtime.GOOS == "linux" && (p.client <= 0 || p.server <= 0) {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = c.point(t.Context(), dir, point{axis: "streams", stack: "plaintext+wisp", streams: 1500, connections: 1, size: 4 << 10})
	if err != nil || !strings.Contains(p.String(), "failed") || p.goodput != 0 {
		t.Errorf("1500 streams of one WebSocket, with a server that allows 1024: %+v, %v", p, err)
	}
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"--out", t.TempDir(), "-t", "0"}, {"--out", t.TempDir(), "stray"}, {"--out", t.TempDir(), "--only", "["}, {"--out", t.TempDir(), "--redraw"}} {
		if err := command(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
