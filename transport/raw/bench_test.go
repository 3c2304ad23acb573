// Benchmarks of bare connections as streams: opening one, a flood, and the round trip of one byte.
//
//	go test -run - -bench . ./transport/raw

package raw

import (
	"context"
	"io"
	"net"
	"testing"

	"muxperf/transport"
)

// benchListener returns a loopback listener and a dialer to it.
func benchListener(b *testing.B) (net.Listener, func(context.Context) (net.Conn, error)) {
	b.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp4", l.Addr().String())
	}
}

// benchStream opens a stream of the client and accepts it.
func benchStream(b *testing.B, client *Bundle, l net.Listener) (out, in transport.MuxStream) {
	b.Helper()
	out, err := client.OpenStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	if in, err = Server(conn).AcceptStream(b.Context()); err != nil {
		b.Fatal(err)
	}
	return out, in
}

// benchClient dials.
func benchClient(b *testing.B) (*Bundle, net.Listener) {
	b.Helper()
	l, dial := benchListener(b)
	first, err := dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	client := Client(first, dial)
	b.Cleanup(func() { client.Close() })
	return client, l
}

// BenchmarkOpen is a stream's whole life: a connection, which is reset in the end, so that ports do not run out.
func BenchmarkOpen(b *testing.B) {
	client, l := benchClient(b)
	b.ReportAllocs()
	for range b.N {
		out, in := benchStream(b, client, l)
		out.Reset()
		in.Reset()
	}
}

func BenchmarkFlood(b *testing.B) {
	client, l := benchClient(b)
	out, in := benchStream(b, client, l)
	const block = 128 << 10
	received := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(in, int64(b.N)*block), make([]byte, 256<<10))
		received <- err
	}()
	buf := make([]byte, block)
	b.SetBytes(block)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := out.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-received; err != nil {
		b.Fatal(err)
	}
	in.Close()
}

func BenchmarkRoundTrip(b *testing.B) {
	client, l := benchClient(b)
	out, in := benchStream(b, client, l)
	answered := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{io.LimitReader(in, int64(b.N))}, make([]byte, 1))
		answered <- err
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
	if err := <-answered; err != nil {
		b.Fatal(err)
	}
	in.Close()
}
