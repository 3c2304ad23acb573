package protocol

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answered serves RR on one end of a pipe, with a delay before each response, and returns the other.
func answered(t *testing.T, delay func(i int) time.Duration) net.Conn {
	a, b := net.Pipe()
	go func() {
		defer b.Close()
		h, err := ReadRRHeader(b)
		if err != nil {
			return
		}
		request, response := make([]byte, h.Request), make([]byte, h.Response)
		for i := 0; ; i++ {
			if _, err := io.ReadFull(b, request); err != nil {
				return
			}
			time.Sleep(delay(i))
			copy(response, request)
			if _, err := b.Write(response); err != nil {
				return
			}
		}
	}()
	return a
}

// TestKnownLatencies: with a server of known delay on fake time, every latency is exact.
func TestKnownLatencies(t *testing.T) {
	const delay = 3 * time.Millisecond
	for _, tc := range []struct {
		name string
		load Load
		want int
	}{
		{"closed, one in flight", Load{Count: 100}, 100},
		{"closed, for a time", Load{Duration: 300 * time.Millisecond}, 100},
		{"open, slower than the server", Load{Rate: 100, Duration: time.Second, Outstanding: 64}, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := answered(t, func(int) time.Duration { return delay })
				defer st.Close()
				tc.load.Clock = time.Now
				n := 0
				err := RoundTrips(t.Context(), st, RRHeader{10, 20}, false, tc.load, func(s Sample) {
					n++
					if got := s.Done.Sub(s.Intended); got != delay || s.Sent != s.Intended {
						t.Errorf("transaction %d took %v from %v after its intended instant", n, got, s.Sent.Sub(s.Intended))
					}
				})
				if err != nil || n != tc.want {
					t.Errorf("%d transactions, %v; want %d", n, err, tc.want)
				}
			})
		})
	}
}

// TestStallIsChargedToEveryRequestThatWaited: 1000 requests a second, the server stalls for 500 ms
// once. From the intended instants some 500 requests saw it; from the actual ones a few did.
func TestStallIsChargedToEveryRequestThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := answered(t, func(i int) time.Duration {
			if i == 200 {
				return 500 * time.Millisecond
			}
			return 0
		})
		defer st.Close()
		corrected, uncorrected := 0, 0
		load := Load{Rate: 1000, Duration: 2 * time.Second, Outstanding: 1, Clock: time.Now}
		err := RoundTrips(t.Context(), st, RRHeader{1, 1}, false, load, func(s Sample) {
			if s.Done.Sub(s.Intended) > 10*time.Millisecond {
				corrected++
			}
			if s.Done.Sub(s.Sent) > 10*time.Millisecond {
				uncorrected++
			}
		})
		if err != nil || corrected < 480 || corrected > 500 || uncorrected != 1 {
			t.Errorf("%v: %d slow from the intended instant, %d from the actual one; want about 490 and 1", err, corrected, uncorrected)
		}
	})
}

func TestPipelinedRequestsKeepTheirOrder(t *testing.T) {
	client, server := streams(t)
	var served count
	go RRServer(server, &served)
	n := 0
	err := RoundTrips(t.Context(), client, RRHeader{100, 300}, false, Load{Outstanding: 16, Count: 5000, Clock: time.Now}, func(s Sample) { n++ })
	if err != nil || n != 5000 {
		t.Errorf("%d transactions, %v", n, err)
	}
}

func TestWrongAndShortResponses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer string
		want   error
	}{{"wrong", "\xffx", ErrResponse}, {"short", "\x00", io.ErrUnexpectedEOF}} {
		for _, outstanding := range []int{1, 8} {
			a, b := net.Pipe()
			go func() {
				io.ReadFull(b, make([]byte, 10))
				io.WriteString(b, tc.answer)
				b.Close()
			}()
			err := RoundTrips(t.Context(), a, RRHeader{2, 2}, false, Load{Outstanding: outstanding, Count: 9, Clock: time.Now}, func(Sample) {})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s, %d outstanding: %v, want %v", tc.name, outstanding, err, tc.want)
			}
			a.Close()
		}
	}
}

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, recorded, inside, most atomic.Int64
		do := func(context.Context) error {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			time.Sleep(10 * time.Millisecond)
			n.Add(1)
			return nil
		}
		err := Repeat(t.Context(), Load{Outstanding: 4, Duration: time.Second, Clock: time.Now}, do, func(s Sample) {
			recorded.Add(1)
			if s.Done.Sub(s.Sent) != 10*time.Millisecond {
				t.Errorf("a transaction took %v", s.Done.Sub(s.Sent))
			}
		})
		if err != nil || n.Load() != 400 || recorded.Load() != 400 || most.Load() != 4 {
			t.Errorf("%v: %d made, %d recorded, %d at once", err, n.Load(), recorded.Load(), most.Load())
		}
		boom := errors.New("boom")
		if err := Repeat(t.Context(), Load{Outstanding: 4, Count: 9, Clock: time.Now}, func(context.Context) error { return boom }, func(Sample) {}); err != boom {
			t.Errorf("a failing transaction gave %v", err)
		}
	})
}
