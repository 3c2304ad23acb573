//go:build linux

// Rest: what the server holds once nobody uses it any more has to be what it held before.

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	quiet    = 12 * time.Second // longer than a handshake may take
	restTime = 2 * time.Minute  // for everything to run out: the longest time limit is 75 s
	rssMore  = 64 << 20

	// Go collects the heap of an idle program every two minutes, a sync.Pool survives one collection, and
	// the memory goes back after the next.
	collectTime = 7 * time.Minute
)

// idleGoroutines tells what the goroutines of a server do that has served every stack once and has nothing to
// do: a second process of the same kind answers that, since the question ends it.
func (s *soak) idleGoroutines(ctx context.Context) (map[string]int, error) {
	twin, err := startServer(ctx, s.dir, "twin")
	if err != nil {
		return nil, err
	}
	defer twin.kill()
	before := twin.usage()
	alone := &soak{config: s.config, dir: s.dir, client: s.client, server: twin, ledger: newLedger(s.seed), out: s.out}
	for _, security := range []string{"noise", "plaintext"} {
		for _, mux := range []string{"none", "yamux", "wisp"} {
			st := &step{test: "flood", place: mainTCP, args: []string{"--bidir", "-t", "0.2", "--security", security, "--mux", mux}, length: time.Second,
				want: want{up: true, down: true, bothEnds: true}}
			o, err := alone.playClient(ctx, st)
			if err != nil {
				return nil, err
			}
			if wrong := check(st, o); len(wrong) > 0 && ctx.Err() == nil {
				return nil, fmt.Errorf("a first run over %s+%s: %s", security, mux, strings.Join(wrong, "; "))
			}
		}
	}
	if _, err := rested(ctx, twin, before.files); err != nil {
		return nil, err
	}
	return twin.quit()
}

// rested waits until the server holds no more descriptors than before.
func rested(ctx context.Context, s *server, files int) (time.Duration, error) {
	began := time.Now()
	for s.usage().files > files {
		if time.Since(began) > restTime {
			return 0, fmt.Errorf("%d descriptors %s after the last client, %d before the first", s.usage().files, restTime, files)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-s.ended:
			return 0, fmt.Errorf("the server has ended: %s", s.end())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return time.Since(began), nil
}

// finish lets the server come to rest and compares it with what it was.
func (s *soak) finish(ctx context.Context, before usage, idle map[string]int) {
	select {
	case <-s.server.ended:
		return // that is entered already
	default:
	}
	took, err := rested(ctx, s.server, before.files)
	if err != nil {
		s.ledger.fail(err.Error())
	}
	if rest := quiet - took; rest > 0 {
		select { // goroutines may stay a little longer than their descriptors
		case <-time.After(rest):
		case <-ctx.Done():
			return
		}
	}
	s.ledger.note("descriptors: %d before, %d at rest, reached after %s", before.files, s.server.usage().files, took.Round(100*time.Millisecond))
	s.compareMemory(ctx, before)
	said := s.server.text()
	for _, trouble := range []string{"DATA RACE", "panic", "fatal error"} {
		if strings.Contains(said, trouble) {
			s.ledger.fail(fmt.Sprintf("the server's log has %q:\n%s", trouble, firstLines(said[strings.Index(said, trouble):], 100)))
		}
	}
	s.compareGoroutines(idle)
}

// compareMemory gives the server time to give back what a burst at the end has needed.
func (s *soak) compareMemory(ctx context.Context, before usage) {
	most := s.ledger.warmRSS*3/2 + rssMore
	began := time.Now()
	for s.server.usage().rss > most && time.Since(began) < collectTime && ctx.Err() == nil {
		time.Sleep(time.Second)
	}
	now := s.server.usage()
	s.ledger.note("RSS: %s before, at most %s in the warm-up, %s at rest", mib(before.rss), mib(s.ledger.warmRSS), mib(now.rss))
	if now.rss > most {
		s.ledger.fail(fmt.Sprintf("the server has %s at rest, more than %s", mib(now.rss), mib(most)))
	}
}

// compareGoroutines ends the server, by asking it what is still under way.
func (s *soak) compareGoroutines(idle map[string]int) {
	left, err := s.server.quit()
	if err != nil {
		s.ledger.fail(err.Error())
		return
	}
	var more []string
	count := 0
	for _, what := range slices.Sorted(maps.Keys(left)) {
		count += left[what]
		if n := left[what] - idle[what]; n > 0 {
			more = append(more, fmt.Sprintf("%d in %s", n, what))
		}
	}
	s.ledger.note("goroutines at rest: %d, %d kinds more than in a server that had little to do", count, len(more))
	if len(more) > 0 {
		s.ledger.fail("goroutines were left behind:\n  " + strings.Join(more, "\n  "))
	}
}
