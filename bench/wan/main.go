// Command wan measures one stream over a long fast path, which no loopback test shows: windows that are too small,
// or grow too slowly, leave the line idle. The path is simulated in user space (bench/link).
//
//	go run ./bench/wan [-rate 1e9] [-rtt 50ms] [-t 10] [-reps 3]
//
// It prints the share of the line's rate that the payload reached, after a warm-up of two seconds in which
// windows open, and ends with 1 where less than -least was reached.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"muxperf/bench/internal/ends"
	"muxperf/bench/link"
	"muxperf/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wan:", err)
		os.Exit(1)
	}
}

// A path is the line and how it is measured.
type path struct {
	rate, least float64
	rtt         time.Duration
	seconds     float64
	reps        int
	client      string
	address     string // of the link
}

func run(ctx context.Context, args []string) error {
	p := path{}
	set := flag.NewFlagSet("wan", flag.ContinueOnError)
	set.Float64Var(&p.rate, "rate", 1e9, "of the line, bits per second")
	set.DurationVar(&p.rtt, "rtt", 50*time.Millisecond, "round trip of the path")
	set.Float64Var(&p.seconds, "t", 10, "seconds of each run")
	set.IntVar(&p.reps, "reps", 3, "interleaved runs of each stack")
	set.Float64Var(&p.least, "least", 0.9, "share of the line that each stack has to reach")
	if err := set.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "muxperf-wan-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := ends.Build(ctx, ".", dir, "muxperf/client", "muxperf/server"); err != nil {
		return err
	}
	server, err := ends.Start(ctx, filepath.Join(dir, "server"), "--listen", "127.0.0.1:0", "--json=peer")
	if err != nil {
		return err
	}
	defer server.Stop()
	line, err := link.Listen(ctx, server.HostPort(), link.Path{Rate: p.rate, Delay: p.rtt / 2})
	if err != nil {
		return err
	}
	defer line.Close()
	p.client, p.address = filepath.Join(dir, "client"), line.Addr()
	return p.measure(ctx)
}

// A row is one stack in one direction.
type row struct {
	security, mux string
	reverse       bool
	shares        []float64
}

func (r row) String() string {
	way := "upload"
	if r.reverse {
		way = "download"
	}
	return r.security + "+" + r.mux + ", " + way
}

// measure runs every row in turn, as often as asked, and judges.
func (p *path) measure(ctx context.Context) error {
	var rows []*row
	for _, stack := range [][2]string{{"plaintext", "none"}, {"plaintext", "yamux"}, {"noise", "yamux"}, {"plaintext", "wisp"}} {
		for _, reverse := range []bool{false, true} {
			rows = append(rows, &row{security: stack[0], mux: stack[1], reverse: reverse})
		}
	}
	for range p.reps {
		for _, r := range rows {
			share, err := p.once(ctx, r)
			if err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
			r.shares = append(r.shares, share)
		}
	}
	missed := 0
	fmt.Printf("one stream over %.3g Gbit/s with a round trip of %s, %d runs of %g s\n", p.rate/1e9, p.rtt, p.reps, p.seconds)
	for _, r := range rows {
		s := measure.Median(r.shares, 0.95)
		verdict := "reached"
		if s.Center < p.least {
			verdict = "missed"
			missed++
		}
		fmt.Printf("%-26s %5.1f %% of the line [%.1f, %.1f]  %s\n", r, 100*s.Center, 100*s.Low, 100*s.High, verdict)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d stay below %.0f %%", missed, len(rows), 100*p.least)
	}
	return nil
}

// once is one run; the receiver's goodput counts.
func (p *path) once(ctx context.Context, r *row) (float64, error) {
	args := []string{"-J", "-t", strconv.FormatFloat(p.seconds, 'f', -1, 64), "-O", "2", "--security", r.security, "--mux", r.mux}
	if r.reverse {
		args = append(args, "-R")
	}
	res, _, err := ends.Client(ctx, p.client, append(args, p.address)...)
	if err != nil {
		return 0, err
	}
	for _, d := range res.Directions {
		if d.MeasuredAt == "receiver" {
			return d.Headline().Goodput() / p.rate, nil
		}
	}
	return 0, errors.New("the receiver has told nothing")
}
