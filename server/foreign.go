// The protocols without a control exchange: libp2p's perf, echo, discard, chargen, and request and
// response. The server counts for itself and prints what it saw; there is nobody to tell.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"muxperf/internal/results"
	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/transport"
)

const (
	foreignBuffer = 256 << 10
	foreignStall  = 60 * time.Second // a foreign peer that is silent for so long is gone
)

// serveForeign serves a stream, counting both directions.
func (s *service) serveForeign(ctx context.Context, session transport.Session, st transport.Stream) {
	info := session.Info()
	schedule := measure.Schedule{Interval: time.Second}
	received, sent := measure.NewRecorder(clock(), schedule, 1), measure.NewRecorder(clock(), schedule, 1)
	began := time.Now()
	user, system := measure.CPUTime()

	live, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	r := s.result(info, st.Protocol(), began)
	var pg *page
	open := sync.OnceFunc(func() { // a stream that brings nothing leaves no trace
		pg = s.printer.open(info.Remote)
		pg.start(r)
	})
	guarded := s.guard(ctx, st)
	guarded.first = func() { // an idle stream costs no goroutine but its own
		for _, w := range []struct {
			recorder *measure.Recorder
			received bool
		}{{received, true}, {sent, false}} {
			watchers.Go(func() {
				w.recorder.Run(live, func(iv measure.Interval) {
					open()
					direction, at := "download", "sender"
					if w.received {
						direction, at = "upload", "receiver"
					}
					pg.interval(iv, direction, at, transport.TCPInfo{})
				})
			})
		}
	}
	err := s.speak(guarded, received.Meter(0), sent.Meter(0))
	guarded.release()
	stop()
	watchers.Wait()
	if st.Protocol() == protocol.RR || received.Bytes()+sent.Bytes() == 0 && err == nil {
		return // a transaction, or a stream that came to nothing: no result worth a table
	}
	u, sy := measure.CPUTime()
	local := &control.Report{CPU: control.CPU{User: u - user, System: sy - system, Wall: time.Since(began)}, TCP: session.TCPInfo()}
	if received.Bytes() > 0 {
		local.Received = &control.Side{Totals: received.Stop(err == nil)}
	}
	if sent.Bytes() > 0 {
		local.Sent = &control.Side{Totals: sent.Stop(err == nil)}
	}
	results.Finished(r, local, nil, err)
	open()
	pg.end(r)
	s.finished()
}

// speak runs the protocol of st.
func (s *service) speak(st *guardedStream, received, sent protocol.Counter) error {
	payload := func() *protocol.Payload {
		return protocol.NewPayload(protocol.NewPattern([16]byte{}, protocol.BlockSize, false), protocol.BlockSize)
	}
	switch st.Protocol() {
	case protocol.RR:
		return protocol.RRServer(st, received)
	case protocol.Chargen:
		return protocol.ChargenServer(st, payload(), protocol.BlockSize, sent)
	}
	if err := st.await(); err != nil {
		return err
	}
	buf := make([]byte, foreignBuffer)
	switch st.Protocol() {
	case protocol.Perf010:
		_, err := protocol.Perf010Server(st, buf, received)
		return err
	case protocol.Perf100:
		p := protocol.PerfServer{Buf: buf, Received: received, Sent: sent, Payload: payload(), Block: protocol.BlockSize, Allow: st.allow}
		if s.dialect {
			return p.Serve100Dialect(st)
		}
		return p.Serve100(st)
	case protocol.Echo:
		return protocol.EchoServer(st, buf, received)
	case protocol.Discard:
		_, err := protocol.Drain(st, buf, nil, received)
		return err
	}
	return fmt.Errorf("protocol %s is not served", st.Protocol())
}

// A guardedStream is a foreign stream within the server's limits: it dies when the peer is silent for
// too long, when the server goes down, and when it has run or moved more than is allowed.
type guardedStream struct {
	transport.Stream
	release func()
	first   func()  // called before the first byte is counted
	head    [1]byte // what await has read and Read has not given yet
	waiting int     // 1 if there is such a byte
	allow   protocol.Allowance
	pacer   *measure.Pacer
	limit   uint64
	moved   uint64
	ends    time.Time
	next    time.Time // when the deadline has to be moved on
}

// guard puts the limits on st.
func (s *service) guard(ctx context.Context, st transport.Stream) *guardedStream {
	g := &guardedStream{Stream: st, limit: s.limits.bytes}
	if s.limits.rate > 0 {
		g.pacer = measure.NewPacer(clock(), s.limits.rate)
	}
	if s.limits.duration > 0 {
		g.ends = time.Now().Add(s.limits.duration)
	}
	undo := context.AfterFunc(ctx, func() { _ = st.Reset() })
	g.release = func() { undo() }
	g.allow = func(want int) int {
		if g.pacer != nil {
			time.Sleep(g.pacer.Take(want))
		}
		return want
	}
	return g
}

// extend moves the deadline on, at most a few times a minute: setting one costs a timer.
func (g *guardedStream) extend() error {
	now := time.Now()
	if now.Before(g.next) {
		return nil
	}
	g.next = now.Add(foreignStall / 4)
	deadline := now.Add(foreignStall)
	if !g.ends.IsZero() && g.ends.Before(deadline) {
		deadline = g.ends
	}
	return g.SetDeadline(deadline)
}

// count adds what was moved.
func (g *guardedStream) count(n int) {
	if g.moved == 0 && n > 0 {
		g.first()
	}
	g.moved += uint64(n)
}

// await waits for the first byte or the end, which Read then gives: until something comes, a stream needs no
// buffer, and thousands that are held idle would need a gigabyte.
func (g *guardedStream) await() error {
	if err := g.extend(); err != nil {
		return err
	}
	n, err := g.Stream.Read(g.head[:])
	if g.waiting = n; n > 0 || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Read reads within the limits.
func (g *guardedStream) Read(b []byte) (int, error) {
	if err := g.extend(); err != nil {
		return 0, err
	}
	n, err := g.waiting, error(nil)
	if n > 0 && len(b) > 0 {
		copy(b, g.head[:])
		g.waiting = 0
	} else {
		n, err = g.Stream.Read(b)
	}
	if g.pacer != nil && n > 0 {
		time.Sleep(g.pacer.Take(n))
	}
	if g.count(n); g.limit > 0 && g.moved > g.limit {
		return n, fmt.Errorf("the client sent more than --max-bytes allows (%d)", g.limit)
	}
	return n, err
}

// Write writes within the limits.
func (g *guardedStream) Write(b []byte) (int, error) {
	if err := g.extend(); err != nil {
		return 0, err
	}
	n, err := g.Stream.Write(b)
	if g.count(n); err == nil && g.limit > 0 && g.moved > g.limit {
		return n, fmt.Errorf("more than --max-bytes allows (%d) was sent", g.limit)
	}
	return n, err
}
