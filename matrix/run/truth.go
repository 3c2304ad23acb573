// What a run's number is worth: how much arrived, whether both ends agree on it, and whether it can be.

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"muxperf/matrix/cell"
	"muxperf/matrix/process"
)

const (
	resultTimeout = 5 * time.Second // for the receiver's figure after the client's
	suspectFactor = 1.5             // faster than raw TCP by more than this is no measurement
)

// receiversTruth finds what arrived, and insists that both ends agree where both can tell.
func (a *attempt) receiversTruth(ctx context.Context, rep *cell.Rep, server *process.Process) error {
	switch {
	case a.target != nil:
		return a.truthOfTarget(ctx, rep)
	case a.client.ClientResult() == "iperf3":
		// iperf3 brings both figures itself; what is still in its buffers at the end is not received.
		rep.Received, rep.Returned, rep.MeasuredAt = rep.Returned, 0, "receiver"
		rep.Goodput = rate(rep.Received, rep.Seconds)
		return nil
	case a.server.ServerResult() == "none": // nobody knows what arrived; the table says that the sender measured
		rep.Goodput = rate(rep.Sent, rep.Seconds)
		return nil
	}
	received, seconds, err := a.serverResult(ctx, rep.Sent, server)
	if err != nil {
		return err
	}
	rep.Received = received
	if a.client.ClientResult() != "none" && received != rep.Sent {
		return failed("%s sent %d bytes, %s received %d", a.client.Name, rep.Sent, a.server.Name, received)
	}
	if seconds > 0 {
		rep.Seconds, rep.MeasuredAt = seconds, "receiver"
	}
	rep.Goodput = rate(received, rep.Seconds)
	return nil
}

func rate(bytes uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) * 8 / seconds
}

// serverResult sums the server's result lines, one for each stream or one for all, until they account for
// what was sent or time is up.
func (a *attempt) serverResult(ctx context.Context, sent uint64, server *process.Process) (received uint64, seconds float64, err error) {
	due, cancel := context.WithTimeout(ctx, resultTimeout)
	defer cancel()
	for received < sent || sent == 0 {
		text, err := server.Next(due)
		switch {
		case ctx.Err() != nil:
			return 0, 0, context.Cause(ctx)
		case due.Err() != nil:
			return received, seconds, nil // the caller compares
		case err != nil:
			return 0, 0, a.ended(a.server.Name+"'s server", server)
		}
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && l.Event == "result" {
			received += l.Received
			seconds = max(seconds, l.Seconds)
		}
	}
	return received, seconds, nil
}

// truthOfTarget waits until the target has what the client says it sent, and compares.
func (a *attempt) truthOfTarget(ctx context.Context, rep *cell.Rep) error {
	due, cancel := context.WithTimeout(ctx, resultTimeout)
	defer cancel()
	bytes, took := a.target.Counted()
	for bytes < rep.Sent && due.Err() == nil {
		select {
		case <-due.Done():
		case <-time.After(10 * time.Millisecond):
		}
		bytes, took = a.target.Counted()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rep.Received, rep.Seconds, rep.MeasuredAt = bytes, took.Seconds(), "receiver"
	rep.Goodput = rate(rep.Received, rep.Seconds)
	if a.client.ClientResult() != "none" && rep.Received != rep.Sent {
		return failed("%s sent %d bytes through %s, %d arrived", a.client.Name, rep.Sent, a.server.Name, rep.Received)
	}
	if a.key.Mode == "echo" && a.client.ClientResult() != "none" && rep.Returned != rep.Sent {
		return failed("%s sent %d bytes, %d came back", a.client.Name, rep.Sent, rep.Returned)
	}
	return nil
}

// plausible refuses numbers that cannot be.
func (a *attempt) plausible(rep *cell.Rep) error {
	suspect := func(format string, v ...any) error { return &failure{cell.Suspect, fmt.Sprintf(format, v...)} }
	switch {
	case rep.Received == 0 && rep.Sent == 0, rep.Received == 0 && rep.MeasuredAt == "receiver":
		return suspect("nothing was moved")
	case rep.Seconds < 100e-6:
		return suspect("it took %.0f us, less than a round trip", rep.Seconds*1e6)
	case rep.Seconds < 0.5*a.seconds:
		return suspect("it measured %.2f s of the %.2f s that it had", rep.Seconds, a.seconds)
	case a.key.Stack == "plaintext+none": // this is raw TCP
		return nil
	case a.m.RawTCP > 0 && rep.Goodput > suspectFactor*a.m.RawTCP && rep.Goodput > suspectFactor*a.m.rawAgain():
		return suspect("%.1f Gbit/s is faster than raw TCP here (%.1f)", rep.Goodput/1e9, a.m.RawTCP/1e9)
	}
	return nil
}
