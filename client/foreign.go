// Floods without a control exchange: libp2p's perf protocols, echo and discard. What the peer received is
// not told by it, so the sender's figures are the result, and it says so; an echo, and a download, are
// counted where they arrive, which is here.

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muxperf/internal/results"
	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/testee"
	"muxperf/transport"
	"muxperf/transport/tcp"
)

// maxBlocking is how many transactions in flight may each block a thread.
const maxBlocking = 16

// A Wisp server that has renewed no credit for so long has passed on what it will: closing earlier loses what
// it has queued. The time is not measured.
const (
	settleQuiet = 500 * time.Millisecond
	settleLimit = 10 * time.Second
)

// A foreignRun is one flood over a foreign protocol.
type foreignRun struct {
	r              *runner
	protocol       string
	streams        []transport.Stream
	sent, received *measure.Recorder
	budget         atomic.Int64 // bytes that may still be sent
	over           atomic.Bool  // time is up, or the user ended it
	pattern        []byte
}

// foreign runs protocol p on o.streams streams of each session.
func (r *runner) foreign(ctx context.Context, sessions []transport.Session, p string) (*report.Result, error) {
	res := r.blank(p)
	if sessions != nil {
		res = r.result(p, sessions[0].Info())
	}
	if err := r.foreignCan(p); err != nil {
		return res, err
	}
	began := time.Now()
	streams, infos, err := r.openForeign(ctx, sessions, p)
	defer func() {
		for _, st := range streams {
			_ = st.Close()
		}
	}()
	if err != nil {
		return res, err
	}
	res.Setup = &report.Setup{Stream: time.Since(began)}
	if sessions != nil {
		res.Setup.Setup = sessions[0].Info().Setup
	}
	res.Directions = plannedDirections(r.o.direction())
	r.renderer.Start(res)

	s := measure.Schedule{Omit: r.o.omit, Interval: r.o.output.Interval, Duration: r.o.time}
	if r.o.bytes > 0 {
		s.Duration = 0
	}
	run := &foreignRun{r: r, protocol: p, streams: streams,
		sent: measure.NewRecorder(r.clock, s, len(streams)), received: measure.NewRecorder(r.clock, s, len(streams)),
		pattern: protocol.NewPattern([16]byte{}, int(r.o.block), false)}
	run.budget.Store(int64(min(r.o.bytes, math.MaxInt64)))
	local, err := run.play(ctx)
	local.TCP = infos()
	results.Finished(res, local, nil, err)
	return res, err
}

// foreignCan reports what a protocol cannot do.
func (r *runner) foreignCan(p string) error {
	unsupported := func(what string) error {
		return &report.Error{Kind: report.KindUnsupported, Message: p + " cannot " + what, Hint: "a muxperf server can: --protocol muxperf"}
	}
	switch {
	case r.o.bidir:
		return unsupported("send both ways")
	case r.o.verify:
		return unsupported("verify the payload at the receiver")
	case r.o.reverse && p != protocol.Perf100:
		return unsupported("send from the server")
	case r.o.dialect && p == protocol.Perf100 && r.o.bytes == 0:
		return &report.Error{Kind: report.KindUsage, Message: "the 16-byte dialect announces the bytes first: give -n"}
	}
	return nil
}

// openForeign opens the streams; infos reads the kernel's view of their connections.
func (r *runner) openForeign(ctx context.Context, sessions []transport.Session, p string) (streams []transport.Stream, infos func() []transport.TCPInfo, err error) {
	infos = func() (all []transport.TCPInfo) {
		for _, s := range sessions {
			all = append(all, s.TCPInfo()...)
		}
		return all
	}
	for i := range r.o.connections * r.o.streams {
		var st transport.Stream
		switch {
		case sessions == nil:
			st, err = r.bareStream(ctx)
		case r.o.target != "":
			st, err = r.targetStream(ctx, sessions[i/r.o.streams])
		default:
			st, err = sessions[i/r.o.streams].Open(ctx, p)
		}
		if err != nil {
			return streams, infos, err
		}
		streams = append(streams, st)
	}
	return streams, infos, nil
}

// bareStream connects without any layer.
func (r *runner) bareStream(ctx context.Context) (transport.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.connectTimeout)
	defer cancel()
	dial := tcp.Dial
	if r.o.test != report.Flood && r.o.engine != testee.EngineNet && r.o.outstanding <= maxBlocking {
		dial = tcp.DialBlocking
	}
	conn, err := dial(ctx, r.o.address.Network, r.o.address.HostPort(), r.cfg.TCP)
	if err != nil {
		return nil, report.Wrap(report.KindConnect, fmt.Errorf("cannot connect to %s: %w", r.o.address, err), "is a server listening there?")
	}
	return transport.BareStream(conn, r.o.protocol), nil
}

// targetStream opens a stream to --target through a Wisp server.
func (r *runner) targetStream(ctx context.Context, s transport.Session) (transport.Stream, error) {
	d, ok := s.(transport.TargetDialer)
	if !ok {
		return nil, errors.New("this session cannot reach other hosts")
	}
	host, port, err := splitTarget(r.o.target)
	if err != nil {
		return nil, err
	}
	return d.DialTarget(ctx, "tcp", host, port)
}

// play moves the payload on every stream. The report is there whatever happens.
func (f *foreignRun) play(ctx context.Context) (*control.Report, error) {
	user, system := measure.CPUTime()
	began := f.r.clock()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var movers, watchers sync.WaitGroup
	watching, stop := context.WithCancel(context.Background())
	watchers.Go(func() { f.sent.Run(watching, f.shown("upload", "sender")) })
	watchers.Go(func() { f.received.Run(watching, f.shown("download", "receiver")) })
	watchers.Go(func() { f.guard(ctx, watching, fail) })
	var failed error
	var once sync.Once
	for i, st := range f.streams {
		movers.Go(func() {
			if err := f.move(ctx, i, st); err != nil && !(f.over.Load() && errors.Is(err, os.ErrDeadlineExceeded)) {
				once.Do(func() { failed = err })
				fail(err)
			}
		})
	}
	movers.Wait()
	stop()
	watchers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		failed = cause
	}
	u, s := measure.CPUTime()
	rep := &control.Report{CPU: control.CPU{User: u - user, System: s - system, Wall: f.r.clock().Sub(began)}}
	if f.sent.Bytes() > 0 {
		rep.Sent = &control.Side{Totals: f.sent.Stop(failed == nil)}
	}
	if f.received.Bytes() > 0 {
		rep.Received = &control.Side{Totals: f.received.Stop(failed == nil)}
	}
	return rep, failed
}

func (f *foreignRun) shown(direction, at string) func(measure.Interval) {
	return func(iv measure.Interval) { f.r.show(report.Live{Interval: iv, Direction: direction, At: at}) }
}

// move runs the protocol on one stream.
func (f *foreignRun) move(ctx context.Context, i int, st transport.Stream) error {
	block := int(f.r.o.block)
	up := protocol.PerfUpload{Payload: protocol.NewPayload(f.pattern, block), Block: block,
		Allow: f.allowance(ctx), Count: f.sent.Meter(i)}
	buf := make([]byte, max(block, 64<<10))
	download := uint64(0)
	if f.r.o.reverse {
		up.Allow, download = protocol.For(0), f.downloadSize(i)
	}
	var err error
	switch f.protocol {
	case protocol.Perf010:
		_, err = protocol.Perf010Client(st, up)
	case protocol.Perf100:
		if f.r.o.dialect {
			_, _, err = protocol.Perf100DialectClient(st, up, f.share(i), download, buf, f.received.Meter(i))
		} else {
			_, _, err = protocol.Perf100Client(st, up, download, buf, f.received.Meter(i))
		}
	case protocol.Echo:
		return f.echo(st, up, buf, i)
	default:
		_, err = protocol.Send(st, up.Payload, block, up.Allow, up.Count)
		if w, ok := st.(interface {
			Settle(quiet, limit time.Duration)
		}); ok && f.r.o.target != "" {
			w.Settle(settleQuiet, settleLimit)
		}
	}
	return err
}

// share is the part of -n that stream i has to move.
func (f *foreignRun) share(i int) uint64 {
	n := uint64(len(f.streams))
	part := f.r.o.bytes / n
	if uint64(i) < f.r.o.bytes%n {
		part++
	}
	return part
}

// downloadSize asks for the share of -n, or for more than any time suffices for: then the stream is reset
// when time is up.
func (f *foreignRun) downloadSize(i int) uint64 {
	if f.r.o.bytes > 0 {
		return f.share(i)
	}
	return math.MaxUint64
}

// echo sends and reads back at the same time, until everything that was sent has come back.
func (f *foreignRun) echo(st transport.Stream, up protocol.PerfUpload, buf []byte, i int) error {
	sent := make(chan uint64, 1)
	failed := make(chan error, 1)
	go func() {
		n, err := protocol.Send(st, up.Payload, up.Block, up.Allow, up.Count)
		failed <- err
		sent <- n
		if err == nil && f.received.Meter(i).Bytes() >= n {
			_ = st.SetReadDeadline(time.Unix(1, 0)) // all of it is back already
		}
	}()
	due, known := uint64(0), false
	var got uint64
	for !known || got < due {
		n, err := st.Read(buf)
		got += uint64(n)
		f.received.Meter(i).Add(n)
		if !known {
			select {
			case due = <-sent:
				known = true
			default:
			}
		}
		if err != nil {
			if !known {
				_ = st.SetWriteDeadline(time.Unix(1, 0))
				due = <-sent
			}
			if got == due {
				break
			}
			return errors.Join(fmt.Errorf("reading the echo: %d of %d bytes came back: %w", got, due, err), <-failed)
		}
	}
	return <-failed
}

// allowance is where duration, budget, pace and the user's wish to stop meet.
func (f *foreignRun) allowance(ctx context.Context) protocol.Allowance {
	o := f.r.o
	var pacers []*measure.Pacer
	for _, rate := range []float64{o.rate / float64(len(f.streams)), o.streamRate} {
		if rate > 0 {
			pacers = append(pacers, measure.NewPacer(f.r.clock, rate))
		}
	}
	return func(want int) int {
		if f.over.Load() || ctx.Err() != nil || o.time > 0 && f.sent.Elapsed() >= o.omit+o.time {
			return 0
		}
		for _, p := range pacers {
			time.Sleep(p.Take(want))
		}
		if o.bytes == 0 {
			return want
		}
		left := f.budget.Add(-int64(want)) + int64(want)
		return int(max(0, min(int64(want), left)))
	}
}

// guard ends a run whose time is up while it receives, that the user ended, or in which nothing moves.
func (f *foreignRun) guard(ctx, until context.Context, fail context.CancelCauseFunc) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	seen, at := uint64(0), f.r.clock()
	for {
		select {
		case <-until.Done():
			return
		case <-ctx.Done():
			f.abandon(2 * time.Second)
			return
		case <-t.C:
		}
		if o := f.r.o; o.reverse && o.time > 0 && f.received.Elapsed() >= o.omit+o.time {
			f.abandon(0)
			return
		}
		if now := f.sent.Bytes() + f.received.Bytes(); now != seen {
			seen, at = now, f.r.clock()
		} else if f.r.clock().Sub(at) >= f.r.o.stall {
			fail(&report.Error{Kind: report.KindStalled, Message: fmt.Sprintf("no payload moved for %s", f.r.o.stall), Hint: "--rcv-timeout allows longer silences"})
		}
	}
}

// abandon ends every stream's reading and writing, after a grace for what is under way.
func (f *foreignRun) abandon(grace time.Duration) {
	f.over.Store(true)
	for _, st := range f.streams {
		_ = st.SetDeadline(time.Now().Add(grace))
	}
}
