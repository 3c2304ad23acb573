// Benchmarks of the plaintext exchange: how long it takes over loopback TCP, and that what follows costs what
// the bare connection costs.
//
//	go test -run - -bench . ./transport/plaintext

package plaintext

import (
	"io"
	"net"
	"testing"

	"muxperf/transport"
)

// benchPair returns both ends of a loopback connection.
func benchPair(b *testing.B) (net.Conn, net.Conn) {
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
	b.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// benchExchange secures both ends.
func benchExchange(b *testing.B, x, y net.Conn) (client, server *transport.Secured) {
	b.Helper()
	ck, sk := testKey(1), testKey(2)
	done := make(chan error, 1)
	go func() {
		var err error
		server, err = Server(b.Context(), y, Config{Key: sk})
		done <- err
	}()
	client, err := Client(b.Context(), x, Config{Key: ck, Remote: sk.ID()})
	if serr := <-done; err != nil || serr != nil {
		b.Fatalf("client %v, server %v", err, serr)
	}
	return client, server
}

// BenchmarkHandshake repeats the exchange on one connection: it leaves nothing behind on the wire.
func BenchmarkHandshake(b *testing.B) {
	x, y := benchPair(b)
	b.ReportAllocs()
	for range b.N {
		benchExchange(b, x, y)
	}
}

func BenchmarkFlood(b *testing.B) {
	x, y := benchPair(b)
	client, server := benchExchange(b, x, y)
	const block = 128 << 10
	received := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(server, int64(b.N)*block), make([]byte, 256<<10))
		received <- err
	}()
	buf := make([]byte, block)
	b.SetBytes(block)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-received; err != nil {
		b.Fatal(err)
	}
}
