// Benchmarks of the negotiation over loopback TCP: one protocol named and agreed on, the same after others were
// refused, and lazily, where the first payload goes out with the name.
//
//	go test -run - -bench . ./transport/multistream

package multistream

import (
	"io"
	"net"
	"sync"
	"testing"

	"muxperf/internal/loopback"
)

// BenchmarkHandshake repeats the negotiation on one connection: it leaves nothing behind on the wire. The
// payload of one byte there and back is what the lazy form saves a round trip of.
func BenchmarkHandshake(b *testing.B) {
	const wanted = "/perf/1.0.0"
	for _, tc := range []struct {
		name  string
		agree func(net.Conn) (io.ReadWriter, error)
	}{
		{"first", func(c net.Conn) (io.ReadWriter, error) { _, err := Select(c, wanted); return c, err }},
		{"third", func(c net.Conn) (io.ReadWriter, error) {
			_, err := Select(c, "/a/1.0.0", "/b/1.0.0", wanted)
			return c, err
		}},
		{"lazy", func(c net.Conn) (io.ReadWriter, error) { return SelectLazyConn(c, wanted), nil }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			x, y := loopback.Pair(b)
			var wg sync.WaitGroup
			wg.Go(func() {
				var one [1]byte
				for range b.N {
					_, err := Negotiate(y, func(p string) bool { return p == wanted })
					if err == nil {
						_, err = io.ReadFull(y, one[:])
					}
					if err == nil {
						_, err = y.Write(one[:])
					}
					if err != nil {
						b.Error(err)
						x.Close()
						return
					}
				}
			})
			b.ReportAllocs()
			var one [1]byte
			for range b.N {
				rw, err := tc.agree(x)
				if err == nil {
					_, err = rw.Write(one[:])
				}
				if err == nil {
					_, err = io.ReadFull(rw, one[:])
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			wg.Wait()
		})
	}
}
