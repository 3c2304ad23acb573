// Transactions: rr on one stream, crr with a new connection for each, open with a new stream for each.

package main

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"muxperf/cli"
	"muxperf/internal/results"
	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/report"
	"muxperf/transport"
	"muxperf/transport/stack"
)

// A tally collects the latencies of transactions.
type tally struct {
	corrected, uncorrected, firstByte *measure.Histogram
	mu                                sync.Mutex
	first, last                       time.Time
}

func newTally() *tally {
	return &tally{corrected: measure.NewHistogram(), uncorrected: measure.NewHistogram(), firstByte: measure.NewHistogram()}
}

// record adds one.
func (t *tally) record(s protocol.Sample) {
	t.corrected.Record(s.Done.Sub(s.Intended))
	t.uncorrected.Record(s.Done.Sub(s.Sent))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first.IsZero() || s.Sent.Before(t.first) {
		t.first = s.Sent
	}
	if s.Done.After(t.last) {
		t.last = s.Done
	}
}

// latency makes the result's part.
func (t *tally) latency(open bool) *report.Latency {
	l := &report.Latency{Loop: "closed", Corrected: t.corrected.Distribution(), Window: t.last.Sub(t.first)}
	if l.Window > 0 {
		l.PerSecond = float64(l.Corrected.Count) / l.Window.Seconds()
	}
	if open {
		u := t.uncorrected.Distribution()
		l.Loop, l.Uncorrected = "open", &u
	}
	if f := t.firstByte.Distribution(); f.Count > 0 {
		l.FirstByte = &f
	}
	return l
}

// transactions runs rr, crr or open.
func (r *runner) transactions(ctx context.Context) (*report.Result, error) {
	res := r.blank(protocol.RR)
	user, system := measure.CPUTime()
	began := r.clock()
	t := newTally()
	var err error
	switch {
	case r.o.test == report.CRR:
		if r.annotate(res); r.bare() {
			res.Protocol = "echo"
		}
		r.renderer.Start(res)
		err = protocol.Repeat(ctx, r.load(), r.connectAndAsk, t.record)
	case r.bare():
		err = r.bareRoundTrips(ctx, res, t)
	default:
		err = r.onSessions(ctx, res, t)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if t.corrected.Distribution().Count == 0 {
		return res, err
	}
	u, s := measure.CPUTime()
	res.CPU = report.NewCPU(u-user, s-system, r.clock().Sub(began), 0)
	res.Latency = t.latency(r.o.transactions > 0)
	if err != nil {
		res.Error = results.Classify(err)
	}
	return res, err
}

// load is how transactions are repeated. -n counts them.
func (r *runner) load() protocol.Load {
	return protocol.Load{Outstanding: r.o.outstanding, Rate: r.o.transactions, Duration: r.o.time, Count: r.o.bytes, Clock: r.clock}
}

func (r *runner) header() protocol.RRHeader {
	return protocol.RRHeader{Request: int(r.o.request), Response: int(r.o.response)}
}

// annotate completes the parameters of a result about transactions.
func (r *runner) annotate(res *report.Result) {
	res.Params.Request, res.Params.Response = int(r.o.request), int(r.o.response)
	res.Params.Outstanding, res.Params.Transactions = r.o.outstanding, r.o.transactions
	res.Params.Block, res.Params.Bytes = 0, 0
}

// onSessions dials, and runs rr on every stream, or open.
func (r *runner) onSessions(ctx context.Context, res *report.Result, t *tally) error {
	sessions, err := r.dial(ctx, r.o.connections)
	if err != nil {
		return err
	}
	defer closeAll(sessions)
	*res = *r.result(protocol.RR, sessions[0].Info())
	r.annotate(res)
	res.Setup = &report.Setup{Setup: sessions[0].Info().Setup}
	r.renderer.Start(res)
	if r.o.test == report.Open {
		next := 0
		return protocol.Repeat(ctx, r.load(), func(ctx context.Context) error {
			t.mu.Lock()
			s := sessions[next%len(sessions)]
			next++
			t.mu.Unlock()
			return r.openAndAsk(ctx, s, t)
		}, t.record)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(sessions)*r.o.streams)
	for i := range errs {
		wg.Go(func() { errs[i] = r.roundTrips(ctx, sessions[i/r.o.streams], t) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// roundTrips runs rr on a new stream of s.
func (r *runner) roundTrips(ctx context.Context, s transport.Session, t *tally) error {
	st, bare, err := r.askStream(ctx, s)
	if err != nil {
		return err
	}
	defer st.Close()
	return r.exchange(ctx, st, bare, r.load(), t.record)
}

// askStream opens a stream to something that answers: our RR, or an echo server behind a Wisp server.
func (r *runner) askStream(ctx context.Context, s transport.Session) (st transport.Stream, bare bool, err error) {
	if r.o.target != "" {
		st, err = r.targetStream(ctx, s)
		return st, true, err
	}
	st, err = s.Open(ctx, protocol.RR)
	return st, false, err
}

// exchange makes round trips within the stall timeout.
func (r *runner) exchange(ctx context.Context, st transport.Stream, bare bool, load protocol.Load, record func(protocol.Sample)) error {
	if bare && r.o.request != r.o.response {
		return cli.Errorf("an echo server answers with what it got: --request and --response have to be equal")
	}
	undo := context.AfterFunc(ctx, func() { _ = st.SetDeadline(time.Now().Add(time.Second)) })
	defer undo()
	w := &watchdog{Stream: st, after: r.o.stall}
	err := protocol.RoundTrips(ctx, w, r.header(), bare, load, record)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// A watchdog moves a stream's deadline on while it answers.
type watchdog struct {
	transport.Stream
	after time.Duration
	next  time.Time
	mu    sync.Mutex
}

func (w *watchdog) feed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.After(w.next) {
		w.next = now.Add(w.after / 4)
		_ = w.SetDeadline(now.Add(w.after + w.after/4))
	}
}

func (w *watchdog) Read(b []byte) (int, error)  { w.feed(); return w.Stream.Read(b) }
func (w *watchdog) Write(b []byte) (int, error) { w.feed(); return w.Stream.Write(b) }

// openAndAsk is one transaction of the open test.
func (r *runner) openAndAsk(ctx context.Context, s transport.Session, t *tally) error {
	began := r.clock()
	st, bare, err := r.askStream(ctx, s)
	if err != nil {
		return err
	}
	defer st.Close()
	first := &firstByte{Stream: st, clock: r.clock}
	err = r.exchange(ctx, first, bare, protocol.Load{Count: 1, Clock: r.clock}, func(protocol.Sample) {})
	if err == nil {
		t.firstByte.Record(first.at.Sub(began))
	}
	return err
}

// A firstByte notes when the first byte arrives.
type firstByte struct {
	transport.Stream
	clock measure.Clock
	at    time.Time
}

func (f *firstByte) Read(b []byte) (int, error) {
	n, err := f.Stream.Read(b)
	if n > 0 && f.at.IsZero() {
		f.at = f.clock()
	}
	return n, err
}

// connectAndAsk is one transaction of the crr test: every layer's handshake, one round trip, close.
func (r *runner) connectAndAsk(ctx context.Context) error {
	one := protocol.Load{Count: 1, Clock: r.clock}
	if r.bare() {
		st, err := r.bareStream(ctx)
		if err != nil {
			return err
		}
		defer st.Close()
		return r.exchange(ctx, st, true, one, func(protocol.Sample) {})
	}
	s, err := stack.Dial(ctx, r.o.address, r.cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	st, bare, err := r.askStream(ctx, s)
	if err != nil {
		return err
	}
	if err := r.exchange(ctx, st, bare, one, func(protocol.Sample) {}); err != nil {
		return err
	}
	return st.Close()
}

// bareRoundTrips runs rr against a plain echo server.
func (r *runner) bareRoundTrips(ctx context.Context, res *report.Result, t *tally) error {
	if r.o.test == report.Open {
		return cli.Errorf("--test open needs a muxer: a bare connection has one stream")
	}
	res.Protocol = "echo"
	r.annotate(res)
	st, err := r.bareStream(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	r.renderer.Start(res)
	return r.exchange(ctx, st, true, r.load(), t.record)
}

// splitTarget reads host and port.
func splitTarget(s string) (string, int, error) {
	host, text, err := net.SplitHostPort(s)
	if err == nil {
		var port int
		if port, err = strconv.Atoi(text); err == nil && port > 0 && port < 65536 {
			return host, port, nil
		}
	}
	return "", 0, cli.Errorf("--target %s: want HOST:PORT", s)
}
