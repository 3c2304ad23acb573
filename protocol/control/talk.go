// What is said on the control stream while the payload flows and after it.

package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

// readControl takes the peer's messages until the run is over. It leaves the read deadline alone: that is how play
// ends it, and a deadline set here for the next message could undo that.
func (e *engine) readControl(ctx context.Context) {
	defer close(e.silence)
	for {
		t, body, err := readMessage(e.ch.st)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if errors.Is(err, io.EOF) && closed(e.bye) {
				return
			}
			e.cancel(fmt.Errorf("the control stream ended: %w", peerGone(err)))
			return
		}
		if over, err := e.handle(t, body); err != nil {
			e.cancel(err)
			return
		} else if over {
			return
		}
	}
}

// ErrPeerGone: the peer vanished in mid-run.
var ErrPeerGone = errors.New("the peer is gone")

// peerGone names an end that came where a message was due.
func peerGone(err error) error { return fmt.Errorf("%w (%w)", ErrPeerGone, err) }

// handle acts on one message; over is true after the peer's last one.
func (e *engine) handle(t Type, body []byte) (over bool, err error) {
	switch t {
	case TypeProgress:
		var p Progress
		if err := decode(t, body, &p); err != nil {
			return false, err
		}
		e.peerProgress.Store(p.Sent + p.Received)
	case TypeDone:
		var d Done
		if err := decode(t, body, &d); err != nil {
			return false, err
		}
		return false, e.finishReceiving(d)
	case TypeReport:
		var r Report
		if err := decode(t, body, &r); err != nil {
			return false, err
		}
		select {
		case e.peerReport <- r:
		default:
			return false, fmt.Errorf("%w: a second report", ErrWire)
		}
	case TypeStop:
		cut := ErrInterrupted.Error()
		e.peerCut.Store(&cut)
		e.stopping.Store(true)
		e.setWriteDeadlines(time.Now().Add(stopGrace))
	case TypeAbort:
		var a Abort
		if err := decode(t, body, &a); err != nil {
			return false, err
		}
		return true, fmt.Errorf("the peer gave up: %w", &a)
	case TypeBye:
		close(e.bye)
		return true, nil
	default:
		return false, fmt.Errorf("%w: an unexpected %s", ErrWire, t)
	}
	return false, nil
}

// tell tells the peer how far we are, once a second.
func (e *engine) tell(until context.Context) {
	t := time.NewTicker(progressInterval)
	defer t.Stop()
	for {
		select {
		case <-until.Done():
			return
		case <-t.C:
		}
		if err := e.ch.send(TypeProgress, Progress{Sent: e.sent.Bytes(), Received: e.received.Bytes()}); err != nil {
			e.cancel(peerGone(err))
			return
		}
	}
}

// watch notices when nothing moves any more. It waits for nobody: where the payload stands still, the control stream,
// which often is in the same connection, may do so as well.
func (e *engine) watch(until context.Context) {
	t := time.NewTicker(progressInterval)
	defer t.Stop()
	seen, at := uint64(0), e.clock()
	for {
		select {
		case <-until.Done():
			return
		case <-t.C:
		}
		if now := e.sent.Bytes() + e.received.Bytes() + e.peerProgress.Load(); now != seen {
			seen, at = now, e.clock()
		} else if e.clock().Sub(at) >= e.stallTimeout() {
			e.cancel(errStalled)
			e.ch.hurry()
			return
		}
	}
}

// stallTimeout leaves room for a pace that is slower than one block in that time.
func (e *engine) stallTimeout() time.Duration {
	d := e.params.Stall
	for _, rate := range []float64{e.params.Rate, e.params.StreamRate} {
		if rate > 0 {
			d = max(d, time.Duration(3*8*float64(e.params.Block)/rate*float64(time.Second)))
		}
	}
	return d
}

// exchange sends our report and waits for the peer's. A run that was interrupted stays so, but if the
// peer does not answer any more that is told too; lost is the context whose cause says why.
func (e *engine) exchange(lost context.Context, local Report, isClient bool, cause error) (*Report, error) {
	if err := e.ch.send(TypeReport, local); err != nil {
		return nil, both(cause, peerGone(err))
	}
	timer := time.NewTimer(messageTimeout)
	defer timer.Stop()
	var peer Report
	select {
	case peer = <-e.peerReport:
	case <-e.silence:
		select {
		case peer = <-e.peerReport:
		default:
			return nil, both(cause, e.lost(lost))
		}
	case <-timer.C:
		return nil, both(cause, &Abort{Code: CodeStall, Message: fmt.Sprintf("the peer sent no report within %s", messageTimeout)})
	}
	if isClient {
		if err := e.ch.send(TypeBye, struct{}{}); err != nil {
			return &peer, both(cause, peerGone(err))
		}
	} else {
		select {
		case <-e.bye:
		case <-e.silence:
		case <-timer.C:
		}
	}
	return &peer, cause
}

// lost is why the control stream is silent, if nothing else ended the run before.
func (e *engine) lost(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrInterrupted) && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("no report of the peer: %w", cause)
	}
	return ErrPeerGone
}

// both is two errors in one line; the first may be nil.
func both(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

// report makes this end's result out of the recorders.
func (e *engine) report(cause error, began time.Time, user, system time.Duration) Report {
	u, s := measure.CPUTime()
	r := Report{
		Agent: e.agent, Environment: e.environment,
		CPU: CPU{User: u - user, System: s - system, Wall: e.clock().Sub(began)},
		TCP: e.tcpInfo(),
	}
	if cause != nil {
		r.Incomplete = cause.Error()
	}
	if e.send {
		r.Sent = &Side{Totals: e.sent.Stop(cause == nil), TCP: e.tcpSeries}
	}
	if e.receive {
		r.Received = &Side{Totals: e.received.Stop(cause == nil), Verified: e.params.Verify && cause == nil}
	}
	return r
}

// observe passes intervals on, and notes the kernel's view at their end.
func (e *engine) observe(received bool) func(measure.Interval) {
	return func(iv measure.Interval) {
		var tcp transport.TCPInfo
		if !received {
			tcp = transport.MergeTCPInfo(e.tcpInfo())
			e.tcpSeries = append(e.tcpSeries, tcp)
		}
		if e.observer.Interval != nil {
			e.observer.Interval(received, iv, tcp)
		}
	}
}
