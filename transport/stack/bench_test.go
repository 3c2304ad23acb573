// Benchmarks of whole stacks over loopback TCP, both ends in this process: a flood in blocks of 64 KiB, with
// the heap allocations of both ends for each block, and the round trip of one byte.
//
//	go test -run - -bench . ./transport/stack

package stack

import (
	"context"
	"io"
	"runtime"
	"testing"

	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/tcp"
)

const benchProtocol = "/test/bench/1.0.0"

func BenchmarkFlood(b *testing.B) {
	for _, st := range stacks() {
		b.Run(st[0]+"+"+st[1], func(b *testing.B) {
			out, in := benchStreams(b, st[0], st[1])
			const block, warmUp = 64 << 10, 512
			buf := make([]byte, block)
			n := warmUp + b.N
			received := make(chan error, 1)
			go func() {
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(in, int64(n)*block), make([]byte, 256<<10))
				received <- err
			}()
			var before, after runtime.MemStats
			b.SetBytes(block)
			for i := range n {
				if i == warmUp { // buffers and windows have grown: what follows is the steady state
					runtime.ReadMemStats(&before)
					b.ResetTimer()
				}
				if _, err := out.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-received; err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/64KiB")
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, st := range stacks() {
		b.Run(st[0]+"+"+st[1], func(b *testing.B) {
			out, in := benchStreams(b, st[0], st[1])
			failed := make(chan error, 1)
			go func() {
				_, err := io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{io.LimitReader(in, int64(b.N))}, make([]byte, 1))
				failed <- err
			}()
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
			if err := <-failed; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// benchStreams returns both ends of a stream of a stack.
func benchStreams(b *testing.B, security, mux string) (out, in transport.Stream) {
	b.Helper()
	l, err := tcp.Listen(b.Context(), "tcp4", "127.0.0.1:0", tcp.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	cfg := Config{Key: identity.FromSeed([32]byte{1}), Serve: func(p string) bool { return p == benchProtocol }, WispPorts: map[int]string{9: benchProtocol}}
	type accepted struct {
		session transport.Session
		stream  transport.Stream
		err     error
	}
	server := make(chan accepted, 1)
	go func() {
		var a accepted
		conn, err := l.Accept()
		if err == nil {
			if a.session, err = Upgrade(context.Background(), conn, cfg); err == nil {
				a.stream, err = a.session.Accept(context.Background())
			}
		}
		a.err = err
		server <- a
	}()
	addr, err := identity.ParseAddress(l.Addr().String(), 0)
	if err != nil {
		b.Fatal(err)
	}
	client, err := Dial(b.Context(), addr, clientConfig(security, mux))
	if err != nil {
		b.Fatal(err)
	}
	out, err = client.Open(b.Context(), benchProtocol)
	if err != nil {
		b.Fatal(err)
	}
	a := <-server
	if a.err != nil {
		b.Fatal(a.err)
	}
	b.Cleanup(func() { client.Close(); a.session.Close() })
	return out, a.stream
}
