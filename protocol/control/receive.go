// The receiving half of a run: each stream is read until it has brought the bytes that the peer's done
// names. Which of the two comes first, the last byte or the number, is a matter of chance.

package control

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/transport"
)

// An inbound is what has arrived on one stream, and what is due.
type inbound struct {
	mu      sync.Mutex
	got     uint64
	target  uint64
	known   bool // the target has arrived
	ended   bool // the peer has closed the stream
	settled bool // all is here
}

// update changes the state under its lock and returns true once, when all has arrived. The error says
// that it never will, or that it was too much.
func (in *inbound) update(change func(*inbound)) (settled bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	change(in)
	switch {
	case !in.known || in.settled:
		return false, nil
	case in.got > in.target:
		return false, &Abort{Code: CodeBytes, Message: fmt.Sprintf("%d bytes arrived on a stream, the sender counts %d", in.got, in.target)}
	case in.got == in.target:
		in.settled = true
		return true, nil
	case in.ended:
		return false, fmt.Errorf("%w: %d of %d bytes arrived on a stream", protocol.ErrShort, in.got, in.target)
	}
	return false, nil
}

// update changes stream i and draws the consequences.
func (e *engine) update(i int, change func(*inbound)) {
	settled, err := e.inbound[i].update(change)
	if err != nil {
		e.cancel(err)
		return
	}
	if settled {
		_ = e.streams[i].SetReadDeadline(time.Unix(1, 0)) // ends the Drain that waits for more
		if e.left.Add(-1) == 0 {
			close(e.allReceived)
		}
	}
}

// startReceiving starts a goroutine for each stream.
func (e *engine) startReceiving(movers *sync.WaitGroup, pattern []byte) {
	for i, st := range e.streams {
		movers.Go(func() {
			if err := e.receiveStream(i, st, pattern); err != nil {
				e.cancel(err)
			}
		})
	}
}

// receiveStream reads one stream to its end, or until its deadline ends it.
func (e *engine) receiveStream(i int, st transport.Stream, pattern []byte) error {
	var check *protocol.Payload
	if e.params.Verify {
		check = protocol.NewPayload(pattern, e.params.Block)
	}
	buf := make([]byte, min(readBuffer, max(e.params.Block, 4<<10)))
	_, err := protocol.Drain(st, buf, check, arrival{e, i, e.received.Meter(i)})
	e.inbound[i].mu.Lock()
	settled := e.inbound[i].settled
	e.inbound[i].mu.Unlock()
	switch {
	case errors.Is(err, protocol.ErrPayload):
		return err
	case settled, errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil:
		return fmt.Errorf("receiving on stream %d: %w", i, err)
	}
	e.update(i, func(in *inbound) { in.ended = true })
	return nil
}

// An arrival counts what arrives on a stream and notices when it is all.
type arrival struct {
	e     *engine
	i     int
	meter *measure.Meter
}

func (a arrival) Add(n int) {
	a.meter.Add(n)
	a.e.update(a.i, func(in *inbound) { in.got += uint64(n) })
}

// finishReceiving takes the peer's numbers.
func (e *engine) finishReceiving(d Done) error {
	if !e.receive {
		return fmt.Errorf("%w: done from a peer that was not to send", ErrWire)
	}
	if len(d.Sent) != len(e.streams) {
		return fmt.Errorf("%w: done names %d streams, there are %d", ErrWire, len(d.Sent), len(e.streams))
	}
	if d.Incomplete != "" {
		e.peerCut.Store(&d.Incomplete)
	}
	for i, n := range d.Sent {
		e.update(i, func(in *inbound) { in.target, in.known = n, true })
	}
	return nil
}
