// Benchmarks of Yamux alone over loopback TCP, both ends in this process: floods of one and of many streams,
// opening and closing a stream, and the round trip of one byte.
//
//	go test -run - -bench . ./transport/yamux

package yamux

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"muxperf/transport"
)

// benchPair returns both ends of a session.
func benchPair(b *testing.B, frame int) (client, server *Mux) {
	b.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	x, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	y, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{}.WithDefaults(frame)
	client, err = Client(x, cfg)
	if err != nil {
		b.Fatal(err)
	}
	server, err = Server(y, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// benchStream opens a stream and returns both ends.
func benchStream(b *testing.B, client, server *Mux) (out, in transport.MuxStream) {
	b.Helper()
	out, err := client.OpenStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := out.Write([]byte{0}); err != nil {
		b.Fatal(err)
	}
	if in, err = server.AcceptStream(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return out, in
}

func BenchmarkFlood(b *testing.B) {
	for _, frame := range []int{NoiseFrame, PlaintextFrame} {
		for _, streams := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("frame=%d/streams=%d", frame, streams), func(b *testing.B) {
				client, server := benchPair(b, frame)
				const block = 128 << 10
				var wg sync.WaitGroup
				b.SetBytes(block)
				b.ReportAllocs()
				for i := range streams {
					blocks := b.N / streams
					if i < b.N%streams {
						blocks++
					}
					out, in := benchStream(b, client, server)
					wg.Go(func() {
						buf := make([]byte, 256<<10)
						if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(in, int64(blocks)*block), buf); err != nil || n != int64(blocks)*block {
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
	client, server := benchPair(b, PlaintextFrame)
	out, in := benchStream(b, client, server)
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

// BenchmarkOpen is a stream's whole life: opened, one byte there and back, closed at both ends.
func BenchmarkOpen(b *testing.B) {
	client, server := benchPair(b, PlaintextFrame)
	var wg sync.WaitGroup
	wg.Go(func() {
		var one [1]byte
		for range b.N {
			in, err := server.AcceptStream(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.ReadFull(in, one[:]); err != nil {
				b.Error(err)
				return
			}
			if _, err := in.Write(one[:]); err != nil {
				b.Error(err)
				return
			}
			in.Close()
		}
	})
	b.ReportAllocs()
	b.ResetTimer()
	var one [1]byte
	for range b.N {
		out, err := client.OpenStream(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := out.Write(one[:]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(out, one[:]); err != nil {
			b.Fatal(err)
		}
		out.Close()
	}
	wg.Wait()
}
