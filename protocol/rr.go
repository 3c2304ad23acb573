// The client's side of request and response, and of any transaction that is repeated.
//
// A closed loop sends the next request when a response has come. An open loop sends on a schedule,
// whatever the responses do; latency then counts from the instant at which a request was *intended* to
// go out, so that a server that stalls for a second is charged with every request that waited in that
// second, not only with the one that was in flight (this is what is known as coordinated omission).
// Both views are recorded.

package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"muxperf/measure"
)

// A Sample is one transaction.
type Sample struct {
	Intended time.Time // when it was due; equal to Sent in a closed loop
	Sent     time.Time // when it began
	Done     time.Time // when its last byte had arrived
}

// A Load says how transactions are repeated.
type Load struct {
	Outstanding int           // in flight at once, at least 1
	Rate        float64       // transactions per second of an open loop; 0: closed
	Duration    time.Duration // 0: until Count
	Count       uint64        // 0: until Duration
	Clock       measure.Clock
}

// A schedule hands out the intended instants of an open loop, and the permission to go on.
type schedule struct {
	load  Load
	start time.Time
	mu    sync.Mutex
	n     uint64
}

func newSchedule(l Load) *schedule { return &schedule{load: l, start: l.Clock()} }

// next waits for the next transaction's turn. ok is false when the load is over.
func (s *schedule) next(ctx context.Context) (intended time.Time, ok bool) {
	s.mu.Lock()
	i := s.n
	s.n++
	s.mu.Unlock()
	if s.load.Count > 0 && i >= s.load.Count || ctx.Err() != nil {
		return time.Time{}, false
	}
	now := s.load.Clock()
	intended = now
	if s.load.Rate > 0 {
		intended = s.start.Add(time.Duration(float64(i) / s.load.Rate * float64(time.Second)))
		if d := intended.Sub(now); d > 0 && !sleep(ctx, d) {
			return time.Time{}, false
		}
	}
	if s.load.Duration > 0 && intended.Sub(s.start) >= s.load.Duration {
		return time.Time{}, false
	}
	return intended, true
}

// sleep reports whether d passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ErrResponse: a response that does not belong to the request.
var ErrResponse = errors.New("the response does not repeat the request")

// RoundTrips exchanges requests and responses on st, which speaks RR and has got no header yet. With
// bare, the peer is an echo server: no header is sent, and the sizes must be equal. It returns when
// the load is over and every response has arrived, or with the first error; record is called from one
// goroutine.
func RoundTrips(ctx context.Context, st io.ReadWriter, h RRHeader, bare bool, load Load, record func(Sample)) error {
	if !bare {
		if _, err := st.Write(h.Append(nil)); err != nil {
			return fmt.Errorf("writing the request sizes: %w", err)
		}
	}
	x := exchange{st: st, request: make([]byte, h.Request), response: make([]byte, h.Response), record: record, clock: load.Clock}
	turns := newSchedule(load)
	if load.Outstanding <= 1 && load.Rate == 0 {
		return x.closedLoop(ctx, turns)
	}
	return x.pipelined(ctx, turns, max(1, load.Outstanding))
}

// An exchange holds the buffers of one stream's round trips.
type exchange struct {
	st                io.ReadWriter
	request, response []byte
	record            func(Sample)
	clock             measure.Clock
}

// closedLoop keeps one request in flight, without a goroutine: nothing is handed over.
func (x *exchange) closedLoop(ctx context.Context, turns *schedule) error {
	for i := uint64(0); ; i++ {
		if _, ok := turns.next(ctx); !ok {
			return nil
		}
		x.stamp(i)
		sent := x.clock()
		if _, err := x.st.Write(x.request); err != nil {
			return fmt.Errorf("writing a request: %w", err)
		}
		if err := x.readResponse(i); err != nil {
			return err
		}
		x.record(Sample{Intended: sent, Sent: sent, Done: x.clock()})
	}
}

// stamp marks request i, so that its response can be told from another's.
func (x *exchange) stamp(i uint64) { x.request[0] = byte(i) }

// readResponse reads response i.
func (x *exchange) readResponse(i uint64) error {
	if _, err := io.ReadFull(x.st, x.response); err != nil {
		return fmt.Errorf("reading a response: %w", err)
	}
	if x.response[0] != byte(i) {
		return fmt.Errorf("%w: number %d begins with %d", ErrResponse, i, x.response[0])
	}
	return nil
}

// pipelined keeps up to n requests in flight: responses come in the order of requests.
func (x *exchange) pipelined(ctx context.Context, turns *schedule, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	flying := make(chan Sample, n)
	slots := make(chan struct{}, n)
	written := make(chan error, 1)
	go func() {
		defer close(flying)
		written <- x.write(ctx, turns, flying, slots)
	}()
	for i := uint64(0); ; i++ {
		s, ok := <-flying
		if !ok {
			return <-written
		}
		if err := x.readResponse(i); err != nil {
			cancel()
			for range flying { // the writer ends with the context, or with the stream
			}
			return errors.Join(err, <-written)
		}
		<-slots
		s.Done = x.clock()
		x.record(s)
	}
}

// write sends requests on schedule. The slot is taken before the turn in a closed loop, and after it
// in an open one, where a turn must not wait for responses.
func (x *exchange) write(ctx context.Context, turns *schedule, flying chan<- Sample, slots chan struct{}) error {
	open := turns.load.Rate > 0
	for i := uint64(0); ; i++ {
		if !open && !take(ctx, slots) {
			return nil
		}
		intended, ok := turns.next(ctx)
		if !ok || open && !take(ctx, slots) {
			return nil
		}
		x.stamp(i)
		sent := x.clock()
		if !open {
			intended = sent
		}
		flying <- Sample{Intended: intended, Sent: sent}
		if _, err := x.st.Write(x.request); err != nil {
			return fmt.Errorf("writing a request: %w", err)
		}
	}
}

func take(ctx context.Context, slots chan<- struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Repeat makes transactions with do, load.Outstanding at a time, until the load is over or one fails.
// record is called from several goroutines.
func Repeat(ctx context.Context, load Load, do func(context.Context) error, record func(Sample)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := newSchedule(load)
	var failed error
	var once sync.Once
	var wg sync.WaitGroup
	for range max(1, load.Outstanding) {
		wg.Go(func() {
			for {
				intended, ok := turns.next(ctx)
				if !ok {
					return
				}
				sent := load.Clock()
				if err := do(ctx); err != nil {
					if ctx.Err() == nil {
						once.Do(func() { failed = err })
						cancel(err)
					}
					return
				}
				if load.Rate == 0 {
					intended = sent
				}
				record(Sample{Intended: intended, Sent: sent, Done: load.Clock()})
			}
		})
	}
	wg.Wait()
	return failed
}
