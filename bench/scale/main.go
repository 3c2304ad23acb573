// Command scale draws how goodput, processor time and memory go with the number of streams, the number of
// connections and the size of a write:
//
//	go run ./bench/scale [-t 2] [--reps 1] [--only streams] --out docs/scaling
//
// It runs the real client and server, both on this machine, a server of its own for each point, and writes
// scaling.csv, a picture for each curve, and a README that shows them. A point that fails is a row with the
// reason: where something stops to scale is what one wants to know.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muxperf/bench/internal/ends"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// A config is what the command line says.
type config struct {
	seconds float64
	reps    int
	only    string
	out     string
	redraw  bool
	limit   time.Duration
}

func command(ctx context.Context, args []string, out io.Writer) error {
	c := config{}
	set := flag.NewFlagSet("scale", flag.ContinueOnError)
	set.Float64Var(&c.seconds, "t", 2, "seconds of each run")
	set.IntVar(&c.reps, "reps", 1, "runs of each point; the median counts")
	set.StringVar(&c.only, "only", "*", "axes to measure, a pattern: streams, connections, block")
	set.StringVar(&c.out, "out", "", "folder for scaling.csv, the pictures and their README")
	set.BoolVar(&c.redraw, "redraw", false, "measure nothing, draw the scaling.csv of --out again")
	set.DurationVar(&c.limit, "limit", 3*time.Minute, "for one run beyond its time")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 || c.out == "" || c.reps < 1 || c.seconds <= 0 {
		return errors.New("want flags only, with --out FOLDER")
	}
	if _, err := path.Match(c.only, ""); err != nil {
		return fmt.Errorf("--only %s: %w", c.only, err)
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	if c.redraw {
		points, err := readCSV(filepath.Join(c.out, "scaling.csv"))
		if err != nil {
			return err
		}
		return draw(c.out, points)
	}
	points, err := c.measure(ctx, out)
	if err != nil {
		return err
	}
	return write(c.out, "go run ./bench/scale "+strings.Join(args, " "), points)
}

// measure builds the programs and measures every point, one line for each.
func (c config) measure(ctx context.Context, out io.Writer) ([]point, error) {
	dir, err := os.MkdirTemp("", "muxperf-scale-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := ends.Build(ctx, ".", dir, "muxperf/client", "muxperf/server"); err != nil {
		return nil, err
	}
	var points []point
	for _, p := range plan(c.only) {
		p, err := c.point(ctx, dir, p)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(out, p)
		points = append(points, p)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("--only %s leaves nothing", c.only)
	}
	return points, nil
}
