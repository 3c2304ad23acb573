// The accept rate of an engine by itself. With a client at work beside it on the same processors, the client's
// connects are what limits; so here the connections wait in the accept backlog before the engine starts.

package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"muxperf/measure"
	"muxperf/testee"
)

// queued is how many connections wait: a little less than the usual net.core.somaxconn.
const queued = 4000

// queue compares how fast the engines empty a full accept backlog.
func (b bench) queue(ctx context.Context) error {
	_, _ = testee.FileLimit() // as many as may be; where they do not suffice, connecting says so
	values := map[string][]float64{}
	for range 3 * b.rounds { // each is over in a moment
		for _, engine := range []string{testee.EngineEpoll, testee.EngineNet} {
			rate, err := drain(ctx, engine)
			if err != nil {
				return fmt.Errorf("emptying the accept backlog with %s: %w", engine, err)
			}
			values[engine] = append(values[engine], rate)
		}
	}
	e, g := measure.Median(values[testee.EngineEpoll], 0.95).Center, measure.Median(values[testee.EngineNet], 0.95).Center
	fmt.Printf("accept %d that wait: epoll %.0f/s   net %.0f/s   epoll:net %.2f\n", queued, e, g, e/g)
	return nil
}

// drain fills the backlog of a testee, serves it, and returns how many connections a second it took.
func drain(ctx context.Context, engine string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	spec := testee.Spec{Mode: testee.Echo, Network: "tcp4", Address: "127.0.0.1:0", Backlog: queued + 64}
	t, err := testee.Listen(ctx, spec, testee.Config{Engine: engine})
	if err != nil {
		return 0, err
	}
	serving, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	var dialer net.Dialer
	for range queued {
		c, err := dialer.DialContext(ctx, "tcp4", t.Addr().String())
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
	}
	began := time.Now()
	wg.Go(func() { _ = t.Serve(serving) })
	for t.Stats().Accepted < queued && ctx.Err() == nil {
		time.Sleep(20 * time.Microsecond)
	}
	return queued / time.Since(began).Seconds(), ctx.Err()
}
