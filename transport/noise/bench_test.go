// Benchmarks of the transport phase over loopback TCP: a flood, both ends in this process, and the
// round trip of one byte. Compare workers within one run only:
//
//	go test -run - -bench . -count 6 ./transport/noise

package noise

import (
	"fmt"
	"io"
	"testing"
)

func BenchmarkFlood(b *testing.B) {
	for _, size := range []int{64 << 10, maxPlain, 128_000, 256 << 10, 4 * maxPlain} {
		for _, workers := range []int{1, 2, 3} {
			b.Run(fmt.Sprintf("size=%d/workers=%d", size, workers), func(b *testing.B) {
				x, y := tcpPair(b)
				cx, cy := channel(b, x, y, workers)
				flood(b, cx, cy, size)
			})
		}
	}
}

// BenchmarkSend has a receiver that does not decrypt, so that the sender alone is measured: what
// workers give where the other end is another machine, or faster.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{maxPlain, 128_000, 4 * maxPlain} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("size=%d/workers=%d", size, workers), func(b *testing.B) {
				x, y := tcpPair(b)
				cx := newConn(x, testAEAD(b, 1), testAEAD(b, 2), workers)
				go func() {
					io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{y}, make([]byte, 1<<20))
				}()
				b.SetBytes(int64(size))
				buf := make([]byte, size)
				for range b.N {
					if _, err := cx.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
				cx.Close()
			})
		}
	}
}

func flood(b *testing.B, cx, cy io.ReadWriteCloser, size int) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	got := make(chan int)
	go func() {
		buf, n := make([]byte, 256<<10), 0
		for n < size*b.N {
			m, err := cy.Read(buf)
			if err != nil {
				b.Error(err)
				break
			}
			n += m
		}
		got <- n
	}()
	buf := make([]byte, size)
	b.ResetTimer()
	for range b.N {
		if _, err := cx.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	if n := <-got; n != size*b.N {
		b.Fatalf("%d bytes arrived, want %d", n, size*b.N)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			x, y := tcpPair(b)
			cx, cy := channel(b, x, y, workers)
			roundTrip(b, cx, cy)
		})
	}
	b.Run("tcp", func(b *testing.B) {
		x, y := tcpPair(b)
		roundTrip(b, x, y)
	})
}

func roundTrip(b *testing.B, cx, cy io.ReadWriter) {
	go func() {
		one := make([]byte, 1)
		for range b.N {
			if _, err := io.ReadFull(cy, one); err != nil {
				b.Error(err)
				return
			}
			if _, err := cy.Write(one); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	b.ReportAllocs()
	one := make([]byte, 1)
	for range b.N {
		if _, err := cx.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(cx, one); err != nil {
			b.Fatal(err)
		}
	}
}
