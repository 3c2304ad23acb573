// Benchmarks of the plaintext exchange: how long it takes over loopback TCP, and that what follows costs what
// the bare connection costs.
//
//	go test -run - -bench . ./transport/plaintext

package plaintext

import (
	"io"
	"net"
	"testing"

	"muxperf/internal/loopback"
	"muxperf/transport"
)

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
	x, y := loopback.Pair(b)
	b.ReportAllocs()
	for range b.N {
		benchExchange(b, x, y)
	}
}

func BenchmarkFlood(b *testing.B) {
	x, y := loopback.Pair(b)
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
