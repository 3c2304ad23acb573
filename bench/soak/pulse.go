//go:build linux

// The pulse: whether this machine let us run at all. A virtual machine is paused now and then, and a crowded
// one starves; a time limit that runs out meanwhile says nothing about the server.

package main

import (
	"context"
	"sync"
	"time"
)

const (
	beat       = 100 * time.Millisecond
	standstill = 3 * time.Second // a third of the shortest time limit of client and server
)

// A pulse keeps the times at which even a goroutine that only sleeps came late.
type pulse struct {
	mu   sync.Mutex
	gaps []gap
}

type gap struct{ from, to time.Time }

// run watches until ctx is done.
func (p *pulse) run(ctx context.Context) {
	t := time.NewTicker(beat)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now := time.Now()
			p.beat(last, now)
			last = now
		}
	}
}

func (p *pulse) beat(last, now time.Time) {
	if now.Sub(last) < standstill {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gaps = append(p.gaps, gap{last, now})
}

// stood is the longest standstill that overlaps with a time; 0 for none.
func (p *pulse) stood(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest time.Duration
	for _, g := range p.gaps {
		if g.from.Before(to) && g.to.After(from) {
			longest = max(longest, g.to.Sub(g.from))
		}
	}
	return longest
}
