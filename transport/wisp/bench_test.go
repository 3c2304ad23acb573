// Benchmarks of Wisp alone over loopback TCP, both ends in this process: what many streams cost, up and
// down, and the round trip of one byte. The sizes of writes are in BenchmarkFlood.
//
//	go test -run - -bench . ./transport/wisp

package wisp

import (
	"fmt"
	"io"
	"sync"
	"testing"
)

func BenchmarkStreams(b *testing.B) {
	for _, direction := range []string{"up", "down"} {
		for _, streams := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/streams=%d", direction, streams), func(b *testing.B) {
				client, server := pair(b, ClientConfig{}, ServerConfig{})
				const block = 64 << 10
				var wg sync.WaitGroup
				b.SetBytes(block)
				b.ReportAllocs()
				for i := range streams {
					blocks := b.N / streams
					if i < b.N%streams {
						blocks++
					}
					out, in := open(b, client, server, PortMuxperf)
					if direction == "down" {
						out, in = in, out
					}
					wg.Go(func() {
						if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(in, int64(blocks)*block), make([]byte, 256<<10)); err != nil || n != int64(blocks)*block {
							b.Errorf("%d bytes arrived: %v", n, err)
						}
					})
					wg.Go(func() {
						buf := make([]byte, block)
						for range blocks {
							if _, err := out.Write(buf); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	client, server := pair(b, ClientConfig{}, ServerConfig{})
	out, in := open(b, client, server, PortMuxperf)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.CopyBuffer(struct{ io.Writer }{in}, io.LimitReader(in, int64(b.N)), make([]byte, 1)); err != nil {
			b.Error(err)
		}
	})
	b.ReportAllocs()
	b.ResetTimer()
	var one [1]byte
	for range b.N {
		if _, err := out.Write(one[:]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(out, one[:]); err != nil {
			b.Fatal(err)
		}
	}
	wg.Wait()
}
