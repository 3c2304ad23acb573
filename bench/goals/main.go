// Command goals measures what this project set out to reach, and says of each goal whether it has:
//
//	go run ./bench/goals [-t 10] [--reps 5] [--only 'noise-*,raw'] [--list]
//
// Every figure is a ratio of two medians from runs that alternate, so that a slow minute of the machine falls
// on both alike. Its interval is that of the median of the ratios of each round (order statistics, as the
// matrix has them; with fewer than six rounds their range, which is a little less than 95 %), widened if need
// be to hold the ratio of the medians. A goal is reached if the whole interval is on its side, missed if none
// of it is, and undecided otherwise, as with fewer than five rounds. A machine that lacks what a row needs is told so, and the row says why.
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

	"muxperf/internal/environ"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "goals:", err)
		os.Exit(1)
	}
}

// A config is what the command line says.
type config struct {
	seconds float64
	reps    int
	only    string
	list    bool
}

func command(ctx context.Context, args []string, out, log io.Writer) error {
	c := config{}
	set := flag.NewFlagSet("goals", flag.ContinueOnError)
	set.Float64Var(&c.seconds, "t", 10, "seconds of each run")
	set.IntVar(&c.reps, "reps", 5, "rounds")
	set.StringVar(&c.only, "only", "*", "these rows only, patterns with commas between")
	set.BoolVar(&c.list, "list", false, "list the rows, measure nothing")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 || c.reps < 1 || c.seconds <= 0 {
		return errors.New("want flags only, and at least one round of some time")
	}
	rows, err := choose(goals(), c.only)
	if err != nil {
		return err
	}
	if c.list {
		for _, g := range rows {
			fmt.Fprintf(out, "%-16s %s against %s: %s\n", g.name, g.what, g.against, g.wanted())
		}
		return nil
	}
	return c.run(ctx, rows, out, log)
}

// choose keeps the goals whose names fit one of the patterns.
func choose(all []goal, patterns string) ([]goal, error) {
	var out []goal
	for _, g := range all {
		for p := range strings.SplitSeq(patterns, ",") {
			ok, err := path.Match(strings.TrimSpace(p), g.name)
			if err != nil {
				return nil, fmt.Errorf("--only %s: %w", patterns, err)
			}
			if ok {
				out = append(out, g)
				break
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--only %s: no row has such a name; --list shows them", patterns)
	}
	return out, nil
}

// run measures row after row and prints each when it is there.
func (c config) run(ctx context.Context, rows []goal, out, log io.Writer) error {
	dir, err := os.MkdirTemp("", "muxperf-goals-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	logs, err := filepath.Abs(filepath.Join("out", "goals-"+time.Now().Format("20060102-150405")))
	if err != nil {
		return err
	}
	b, err := prepare(ctx, c, rows, dir, logs, log)
	if err != nil {
		return err
	}
	env := environ.Collect()
	fmt.Fprintf(out, "%s, %s cores, %s, %s, %s: %d rounds of %g s.\n\n", env["cpu"], env["cpus"], env["kernel"], env["go"],
		time.Now().Format(time.DateOnly), c.reps, c.seconds)
	fmt.Fprint(out, "| Row | What | Against | Ours | Theirs | Ratio | 95 % | Goal | Reached |\n|---|---|---|--:|--:|--:|--:|--:|---|\n")
	broken := 0
	for _, g := range rows {
		s, err := g.samples(ctx, b)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var missing *unavailable
		if err != nil && !errors.As(err, &missing) {
			broken++
		}
		fmt.Fprintln(out, g.row(s, err))
	}
	if broken > 0 {
		return fmt.Errorf("%d of %d rows could not be measured; logs of the matrix, if it ran, are in %s", broken, len(rows), logs)
	}
	return nil
}
