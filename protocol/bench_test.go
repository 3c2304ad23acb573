// Benchmarks of the tests themselves over bare loopback TCP: round trips of one byte with their clock, one and
// many in flight, and what sending and draining a flood adds to the socket.
//
//	go test -run - -bench . ./protocol

package protocol

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"muxperf/internal/loopback"
)

// nobody counts nothing.
type nobody struct{}

func (nobody) Add(int) {}

func BenchmarkRR(b *testing.B) {
	for _, outstanding := range []int{1, 16} {
		b.Run(fmt.Sprintf("outstanding=%d", outstanding), func(b *testing.B) {
			x, y := loopback.Pair(b)
			var wg sync.WaitGroup
			wg.Go(func() { _ = RRServer(y, nobody{}) })
			b.ReportAllocs()
			n := 0
			err := RoundTrips(b.Context(), x, RRHeader{1, 1}, false, Load{Outstanding: outstanding, Count: uint64(b.N), Clock: time.Now}, func(Sample) { n++ })
			if err != nil || n != b.N {
				b.Errorf("%d of %d round trips: %v", n, b.N, err)
			}
			x.Close()
			wg.Wait()
		})
	}
}

func BenchmarkFlood(b *testing.B) {
	x, y := loopback.Pair(b)
	const block = 128 << 10
	b.SetBytes(block)
	b.ReportAllocs()
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := Drain(io.LimitReader(y, int64(b.N)*block), make([]byte, 256<<10), nil, nobody{}); err != nil || n != uint64(b.N)*block {
			b.Errorf("%d bytes arrived: %v", n, err)
		}
	})
	if _, err := Send(x, NewPayload(NewPattern([16]byte{}, block, false), block), block, For(uint64(b.N)*block), nobody{}); err != nil {
		b.Fatal(err)
	}
	wg.Wait()
}
