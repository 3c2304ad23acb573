//go:build linux

// Command soak lets one server serve a random mix of clients, whole and broken ones, for minutes, and looks
// whether every result is right and whether the server is in the end what it was in the beginning.
//
//	go run ./bench/soak [-t 10m] [--seed N] [--clients 6] [--race] [--step N]
//
// A test of a part cannot show what is left behind after ten thousand runs, nor what one client's end does to
// another's run: this does. What each step does follows from the seed and the step's number alone, so that
// --seed and --step repeat one that failed; what runs beside it then differs, of course.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// A config is what the command line says.
type config struct {
	duration time.Duration
	seed     uint64
	clients  int  // at the same time
	race     bool // build with the race detector
	step     int  // only this one, again and again; negative: all
	hasty    bool // leave out the steps that wait for a time limit to run out
}

func command(ctx context.Context, args []string, out io.Writer) error {
	c := config{}
	set := flag.NewFlagSet("soak", flag.ContinueOnError)
	set.DurationVar(&c.duration, "t", 10*time.Minute, "how long clients are started")
	set.Uint64Var(&c.seed, "seed", rand.Uint64N(1e9), "what the plan is derived from")
	set.IntVar(&c.clients, "clients", 6, "steps at the same time")
	set.BoolVar(&c.race, "race", false, "build server and client with the race detector")
	set.IntVar(&c.step, "step", -1, "run this step of the plan only, again and again")
	set.BoolVar(&c.hasty, "hasty", false, "leave out the steps that wait for a time limit to run out")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 || c.clients < 1 || c.duration <= 0 {
		return errors.New("want flags only, and at least one client and some time")
	}
	return run(ctx, c, out)
}

// A soak is one run of the command.
type soak struct {
	config
	dir     string
	client  string // the program
	server  *server
	ledger  *ledger
	pulse   pulse
	out     io.Writer
	sockets atomic.Int64 // that proxies have had names for
}

// run builds, soaks, and tells; the error says that something was wrong.
func run(ctx context.Context, c config, out io.Writer) error {
	dir, err := os.MkdirTemp("", "muxperf-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir, c.race); err != nil {
		return err
	}
	s := &soak{config: c, dir: dir, client: filepath.Join(dir, "client"), ledger: newLedger(c.seed), out: out}
	fmt.Fprintf(out, "seed %d, %d clients, %s\n", c.seed, c.clients, c.duration)
	idle, err := s.idleGoroutines(ctx)
	if err != nil {
		return fmt.Errorf("finding what an idle server does: %w", err)
	}
	if s.server, err = startServer(ctx, dir, "server"); err != nil {
		return err
	}
	defer s.server.kill()
	before := s.server.usage()
	s.soak(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.finish(ctx, before, idle)
	s.ledger.print(out)
	return s.ledger.err()
}

// build makes the two programs.
func build(ctx context.Context, dir string, race bool) error {
	args := []string{"build", "-o", dir + "/"}
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, "muxperf/client", "muxperf/server")...).CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w: %s", err, out)
	}
	return nil
}

// soak runs steps until the time is up or the server is gone, and waits for those under way.
func (s *soak) soak(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	watching, over := context.WithCancel(ctx)
	var watcher, workers sync.WaitGroup
	watcher.Go(func() { s.watch(watching, gone) })
	watcher.Go(func() { s.pulse.run(watching) })
	end := time.Now().Add(s.duration)
	var next atomic.Int64
	waiting := make(chan struct{}, 2*s.clients)
	for range s.clients {
		workers.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if s.step >= 0 {
					n = s.step
				}
				switch st := plan(s.seed, n); {
				case !st.slow():
					s.play(ctx, st)
				case !s.hasty: // it mostly waits, and must not keep a client's place meanwhile
					waiting <- struct{}{}
					workers.Go(func() {
						defer func() { <-waiting }()
						if time.Now().Before(end) { // there may have been a queue
							s.play(ctx, st)
						}
					})
				}
			}
		})
	}
	workers.Wait()
	over()
	watcher.Wait()
}

// warmUp is the least time after which a server has met most of what there is.
const warmUp = 10 * time.Second

// watch tells the progress, and notices when the server ends.
func (s *soak) watch(ctx context.Context, gone context.CancelFunc) {
	began := time.Now()
	tick, second := time.NewTicker(10*time.Second), time.NewTicker(time.Second)
	defer tick.Stop()
	defer second.Stop()
	warm := max(s.duration*15/100, warmUp)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.server.ended:
			s.ledger.fail("the server has ended: " + s.server.end())
			gone()
			return
		case <-second.C:
			s.ledger.seen(s.server.usage(), time.Since(began) < warm)
		case <-tick.C:
			s.ledger.progress(s.out, time.Since(began), s.server.usage())
		}
	}
}
