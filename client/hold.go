// The hold test: open many connections, or many streams of a few, keep them, use each once, close them.

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"muxperf/cli"
	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/report"
	"muxperf/testee"
	"muxperf/transport"
)

const (
	holdTimeout = 2 * time.Minute // for all to be established
	openWorkers = 64              // streams or sessions set up at the same time
)

// hold picks the form: bare connections are held by processes that are planned for, everything else by this
// one.
func (r *runner) hold(ctx context.Context) (*report.Result, error) {
	res := r.blank("echo")
	res.Params.Block = 0
	switch {
	case r.o.holdStreams && r.bare():
		return res, cli.Errorf("--hold-streams needs a muxer: a bare connection has one stream")
	case r.bare():
		return res, r.holdBare(ctx, res)
	}
	return res, r.holdSessions(ctx, res)
}

// holdBare holds plain connections to an echo server.
func (r *runner) holdBare(ctx context.Context, res *report.Result) error {
	limit, err := testee.FileLimit()
	if err != nil {
		return err
	}
	plan, err := testee.MakePlan(r.o.connections, limit, r.origin())
	if err != nil {
		return err
	}
	o := testee.HoldOptions{Network: r.o.address.Network, Address: r.o.address.HostPort(), Batch: r.o.batch, Delay: r.o.batchDelay, Timeout: holdTimeout, Patience: max(r.o.stall, time.Duration(r.o.connections)*100*time.Microsecond)}
	out := &report.HoldResult{What: "connections", Asked: r.o.connections, Plan: plan.Words}
	h, err := testee.HoldAll(ctx, plan, o, r.o.time, func(testee.Held) { out.ServerMemory = testee.ListenerMemory(r.o.address.Port, r.o.connections) })
	out.Established, out.Failures, out.Time, out.Delay = h.Established, h.Failed, h.Time, h.Delay
	out.Connect, out.Echoed, out.EchoTime, out.CloseTime = &h.Connect, h.Echoed, h.EchoTime, h.CloseTime
	out.ClientMemory, out.ListenDrops = h.Memory, h.ListenDrops
	return r.finishHold(res, out, err)
}

// finishHold derives the rate, and decides whether the test has failed.
func (r *runner) finishHold(res *report.Result, out *report.HoldResult, err error) error {
	if out.Established > 0 {
		res.Hold = out
		if net := out.Time - out.Delay; net > 0 {
			out.PerSecond = float64(out.Established) / net.Seconds()
		}
	}
	switch {
	case err != nil:
		return err
	case out.Established < out.Asked:
		return report.Errorf(report.KindFailed, "the causes are in the result", "%d of %d %s were established", out.Established, out.Asked, out.What)
	case out.Echoed < out.Established:
		return report.Errorf(report.KindFailed, "is the other end an echo server?", "%d of %d %s echoed", out.Echoed, out.Established, out.What)
	}
	return nil
}

// origin tells where the connections to the target can come from.
func (r *runner) origin() testee.Origin {
	a, err := netip.ParseAddr(r.o.address.Host)
	switch {
	case r.o.address.Network == "unix":
		return testee.FromPath
	case r.o.address.Host == "localhost", err == nil && a.Is4() && a.IsLoopback():
		return testee.FromLoopback
	}
	return testee.FromHost
}

// holdSessions holds sessions with one stream each, or streams of o.connections sessions.
func (r *runner) holdSessions(ctx context.Context, res *report.Result) error {
	out := &report.HoldResult{What: "connections", Asked: r.o.connections, Failures: map[string]int{}}
	dials, perSession := r.o.connections, 1
	if r.o.holdStreams {
		out.What, out.Asked, perSession = "streams", r.o.connections*r.o.streams, r.o.streams
	}
	connect := measure.NewHistogram()
	before := heap()
	began := r.clock()
	var mu sync.Mutex
	var sessions []transport.Session
	var streams []transport.Stream
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		out.Failures[rootCause(err)]++
	}
	opening, cancel := context.WithTimeoutCause(ctx, holdTimeout, fmt.Errorf("not established within %s", holdTimeout))
	defer cancel()
	r.inBatches(opening, dials, &out.Delay, func(ctx context.Context) {
		at := r.clock()
		dialed, err := r.dial(ctx, 1)
		if err != nil {
			fail(err)
			return
		}
		mu.Lock()
		sessions = append(sessions, dialed[0])
		mu.Unlock()
		for range perSession {
			st, err := r.echoStream(ctx, dialed[0])
			if err != nil {
				fail(err)
				continue
			}
			connect.Record(r.clock().Sub(at))
			mu.Lock()
			streams = append(streams, st)
			mu.Unlock()
			at = r.clock()
		}
	})
	defer closeAll(sessions)
	out.Time, out.Established = r.clock().Sub(began), len(streams)
	d := connect.Distribution()
	out.Connect = &d
	if len(sessions) > 0 {
		res.Stack, res.Peer = sessions[0].Info().Stack, report.Peer{Address: sessions[0].Info().Remote, ID: sessions[0].Info().RemotePeer}
		out.ClientMemory = float64(heap()-before) / float64(max(1, len(streams)))
		out.ServerMemory = testee.ListenerMemory(r.o.address.Port, len(streams))
	}
	select {
	case <-time.After(r.o.time):
	case <-ctx.Done():
		return r.finishHold(res, out, context.Cause(ctx))
	}
	began = r.clock()
	out.Echoed = r.echoAll(ctx, streams)
	out.EchoTime = r.clock().Sub(began)
	began = r.clock()
	closeAll(sessions)
	out.CloseTime = r.clock().Sub(began)
	return r.finishHold(res, out, nil)
}

// inBatches calls f n times, some at the same time, with the delay after each batch.
func (r *runner) inBatches(ctx context.Context, n int, delayed *time.Duration, f func(context.Context)) {
	batch := r.o.batch
	if batch <= 0 {
		batch = n
	}
	slots := make(chan struct{}, openWorkers)
	for started := 0; started < n && ctx.Err() == nil; {
		var wg sync.WaitGroup
		for end := min(n, started+batch); started < end; started++ {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				f(ctx)
			})
		}
		wg.Wait()
		if started < n && r.o.batchDelay > 0 {
			time.Sleep(r.o.batchDelay)
			*delayed += r.o.batchDelay
		}
	}
}

// echoStream opens a stream to an echo.
func (r *runner) echoStream(ctx context.Context, s transport.Session) (transport.Stream, error) {
	if r.o.target != "" {
		return r.targetStream(ctx, s)
	}
	return s.Open(ctx, protocol.Echo)
}

// echoAll sends one byte on each stream and counts those that come back.
func (r *runner) echoAll(ctx context.Context, streams []transport.Stream) int {
	var mu sync.Mutex
	echoed := 0
	slots := make(chan struct{}, openWorkers)
	var wg sync.WaitGroup
	for _, st := range streams {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_ = st.SetDeadline(time.Now().Add(r.o.stall))
			var b [1]byte
			if _, err := st.Write([]byte{1}); err != nil || ctx.Err() != nil {
				return
			}
			if n, _ := st.Read(b[:]); n == 1 {
				mu.Lock()
				echoed++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return echoed
}

// rootCause is the innermost error's text: failures are counted by it.
func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// heap is the live heap with the stacks, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
