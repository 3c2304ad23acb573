// The engine of a run, the same at both ends: it sends, receives or does both on a set of data
// streams, and brings the run to an agreed end.
//
// One goroutine a stream and direction moves payload; one reads the control stream; one ticks. They
// meet in two events: `sent`, when every sender has stopped (then `done` goes out), and `received`,
// when the peer's `done` is here and every stream has the bytes that it names. After both, reports are
// exchanged. Whatever goes wrong first (a dead stream, an abort, a stall, a changed byte, Ctrl-C) ends
// the payload by deadlines on the streams, so that no goroutine outlives the run, and the report of
// what was measured until then is still made.

package control

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/transport"
)

const (
	messageTimeout   = 15 * time.Second // for each message that is due
	progressInterval = time.Second
	stopGrace        = 2 * time.Second // for a blocked write to finish once the payload shall end
	readBuffer       = 256 << 10
)

// DefaultStall is how long a run may go without a byte of progress at either end.
const DefaultStall = 10 * time.Second

// An Observer sees a run while it goes on; a nil function is not called.
type Observer struct {
	// Interval sees each interval of what this end sent or received, the kernel's view at the end of
	// those that it sent, connections together.
	Interval func(received bool, iv measure.Interval, tcp transport.TCPInfo)
}

// An engine runs the payload of one end.
type engine struct {
	ch          *channel
	params      Params
	run         [16]byte
	streams     []transport.Stream // connection by connection
	send        bool
	receive     bool
	clock       measure.Clock
	tcpInfo     func() []transport.TCPInfo
	observer    Observer
	agent       string
	environment map[string]string // for our report

	sent, received *measure.Recorder
	tcpSeries      []transport.TCPInfo // written by one goroutine, read after it
	stopping       atomic.Bool         // senders stop at their next block
	budget         atomic.Int64        // bytes that may still be sent, if params.Bytes is set
	inbound        []inbound
	left           atomic.Int64 // streams that have not brought everything
	cancel         context.CancelCauseFunc

	peerProgress atomic.Uint64          // bytes that the peer has sent and received
	peerCut      atomic.Pointer[string] // why the peer's payload is incomplete
	allSent      chan struct{}
	allReceived  chan struct{}
	peerReport   chan Report
	bye          chan struct{} // closed when the peer needs nothing more of us
	silence      chan struct{} // closed when the control stream has ended
}

// errStalled: no progress.
var errStalled = &Abort{Code: CodeStall, Message: "the run stalled",
	Hint: "no payload moved in either direction; is the peer stopped, or the path down? --rcv-timeout allows longer silences"}

// newEngine prepares a run; left-out fields are the caller's.
func newEngine(e *engine) *engine {
	n := len(e.streams)
	s := measure.Schedule{Omit: e.params.Omit, Interval: e.params.Interval, Duration: e.params.Duration}
	if e.params.Bytes > 0 {
		s.Duration = 0 // whichever comes first ends the run; the window ends with the last byte
	}
	e.sent, e.received = measure.NewRecorder(e.clock, s, n), measure.NewRecorder(e.clock, s, n)
	e.budget.Store(int64(min(e.params.Bytes, 1<<62)))
	e.inbound = make([]inbound, n)
	e.left.Store(int64(n))
	e.allSent, e.allReceived = make(chan struct{}), make(chan struct{})
	e.peerReport, e.bye, e.silence = make(chan Report, 1), make(chan struct{}), make(chan struct{})
	if !e.send {
		close(e.allSent)
	}
	if !e.receive {
		close(e.allReceived)
	}
	return e
}

// play moves the payload and exchanges reports. The local report is there whatever happens; the
// peer's may be nil. The error is why the run is incomplete.
func (e *engine) play(ctx context.Context, isClient bool) (local Report, peer *Report, err error) {
	user, system := measure.CPUTime()
	began := e.clock()
	ctx, e.cancel = context.WithCancelCause(ctx)
	defer e.cancel(nil)
	var movers, cutters, helpers sync.WaitGroup
	helpCtx, endHelp := context.WithCancel(context.WithoutCancel(ctx))
	cutCtx, endCuts := context.WithCancel(helpCtx)
	_ = e.ch.st.SetReadDeadline(time.Time{}) // a run lasts as long as it lasts
	helpers.Go(func() { e.readControl(helpCtx) })
	flowCtx, endFlow := context.WithCancel(ctx)
	helpers.Go(func() { e.tell(flowCtx) })
	helpers.Go(func() { e.watch(flowCtx) })
	pattern := protocol.NewPattern(e.run, e.params.Block, e.params.Verify)
	if e.send {
		e.startSending(ctx, &movers, pattern)
		cutters.Go(func() { e.sent.Run(cutCtx, e.observe(false)) })
	}
	if e.receive {
		e.startReceiving(&movers, pattern)
		cutters.Go(func() { e.received.Run(cutCtx, e.observe(true)) })
	}

	err = e.await(ctx)
	if cut := e.peerCut.Load(); err == nil && cut != nil {
		err = &Abort{Code: CodeInterrupted, Message: "the peer ended the run: " + *cut}
	}
	e.endPayload(err)
	movers.Wait()
	endCuts()
	cutters.Wait()
	local = e.report(err, began, user, system)
	if err == nil || isInterrupt(err) {
		peer, err = e.exchange(ctx, local, isClient, err)
	} else if abort := asAbort(err); abort != nil {
		_ = e.ch.send(TypeAbort, abort)
	}
	endFlow()
	endHelp()
	_ = e.ch.st.SetReadDeadline(time.Unix(1, 0))
	helpers.Wait()
	return local, peer, err
}

// await waits for the payload to end in order, or for the first thing that goes wrong. Ctrl-C stops
// our sender, asks the peer to stop his, and leaves him a moment to say how much he sent.
func (e *engine) await(ctx context.Context) error {
	var interrupted error
	var grace <-chan time.Time
	done := ctx.Done()
	sent, received := e.allSent, e.allReceived
	for sent != nil || received != nil {
		select {
		case <-sent:
			sent = nil
		case <-received:
			received = nil
		case <-grace:
			return interrupted
		case <-done:
			cause := context.Cause(ctx)
			if !isInterrupt(cause) {
				return cause
			}
			interrupted, done, grace = cause, nil, time.After(2*stopGrace)
			e.stopping.Store(true)
			e.setWriteDeadlines(time.Now().Add(stopGrace))
			if e.receive {
				_ = e.ch.send(TypeStop, struct{}{})
			}
		}
	}
	return interrupted
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ErrInterrupted: the user ended the run.
var ErrInterrupted = errors.New("interrupted")

// isInterrupt tells a user's wish from a failure: the run then still ends in order.
func isInterrupt(err error) bool {
	var a *Abort
	return errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled) ||
		errors.As(err, &a) && a.Code == CodeInterrupted
}

// asAbort is what to tell the peer about an error; nil if it was he who told us, or if he is gone.
func asAbort(err error) *Abort {
	var a *Abort
	switch {
	case errors.As(err, &a):
		if a == errStalled || a.Code == CodeBytes {
			return a
		}
		return nil
	case errors.Is(err, ErrPeerGone):
		return nil
	case errors.Is(err, protocol.ErrPayload):
		return &Abort{Code: CodeVerify, Message: err.Error()}
	}
	return &Abort{Code: CodeFailed, Message: err.Error()}
}

// endPayload unblocks whatever still reads or writes payload, at once if err says that the run is
// lost.
func (e *engine) endPayload(err error) {
	e.stopping.Store(true)
	past := time.Unix(1, 0)
	for _, st := range e.streams {
		_ = st.SetReadDeadline(past)
		if err != nil {
			_ = st.SetWriteDeadline(past)
		}
	}
}

func (e *engine) setWriteDeadlines(t time.Time) {
	for _, st := range e.streams {
		_ = st.SetWriteDeadline(t)
	}
}
