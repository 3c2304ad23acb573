// The sending half of a run: how much may go out, when, and what the peer is told at its end.

package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"muxperf/measure"
	"muxperf/protocol"
)

// startSending starts a goroutine for each stream, and one that says done after them.
func (e *engine) startSending(ctx context.Context, movers *sync.WaitGroup, pattern []byte) {
	var senders sync.WaitGroup
	totals := make([]uint64, len(e.streams))
	shared := e.newPacer(e.params.Rate)
	for i, st := range e.streams {
		senders.Add(1)
		movers.Go(func() {
			defer senders.Done()
			payload := protocol.NewPayload(pattern, e.params.Block)
			allow := e.allowance(ctx, shared, e.newPacer(e.params.StreamRate))
			var err error
			totals[i], err = protocol.Send(st, payload, e.params.Block, allow, e.sent.Meter(i))
			if err != nil && !e.stopping.Load() {
				e.cancel(fmt.Errorf("sending on stream %d: %w", i, err))
			}
		})
	}
	movers.Go(func() {
		senders.Wait()
		e.finishSending(ctx, totals)
	})
}

func (e *engine) newPacer(rate float64) *measure.Pacer {
	if rate <= 0 {
		return nil
	}
	return measure.NewPacer(e.clock, rate)
}

// allowance is where duration, byte budget, pacing and the wish to stop meet.
func (e *engine) allowance(ctx context.Context, pacers ...*measure.Pacer) protocol.Allowance {
	end := time.Duration(0)
	if e.params.Duration > 0 {
		end = e.params.Omit + e.params.Duration
	}
	return func(want int) int {
		if e.stopping.Load() || end > 0 && e.sent.Elapsed() >= end {
			return 0
		}
		if e.params.Bytes > 0 {
			if want = e.takeBudget(want); want == 0 {
				return 0
			}
		}
		for _, p := range pacers {
			if p == nil {
				continue
			}
			if !e.pause(ctx, p.Take(want), end) {
				e.returnBudget(want)
				return 0
			}
		}
		return want
	}
}

// pause sleeps for a pacer; false if the payload ended meanwhile.
func (e *engine) pause(ctx context.Context, d, end time.Duration) bool {
	if d <= 0 {
		return true
	}
	cut := end > 0 && e.sent.Elapsed()+d >= end
	if cut {
		d = max(0, end-e.sent.Elapsed())
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !cut && !e.stopping.Load()
	case <-ctx.Done():
		return false
	}
}

// takeBudget takes up to want bytes of the budget that all streams share.
func (e *engine) takeBudget(want int) int {
	for {
		have := e.budget.Load()
		n := min(int64(want), have)
		if n <= 0 {
			return 0
		}
		if e.budget.CompareAndSwap(have, have-n) {
			return int(n)
		}
	}
}

func (e *engine) returnBudget(n int) {
	if e.params.Bytes > 0 {
		e.budget.Add(int64(n))
	}
}

// finishSending tells the peer how much was sent, and that it is all. A run that failed does not end so but with an
// abort, which says what it failed of.
func (e *engine) finishSending(ctx context.Context, totals []uint64) {
	d := Done{Sent: totals}
	if cause := context.Cause(ctx); isInterrupt(cause) {
		d.Incomplete = cause.Error()
	} else if cause != nil {
		return
	}
	if err := e.ch.send(TypeDone, d); err != nil {
		e.cancel(err)
		return
	}
	close(e.allSent)
}
