// Package loopback makes what tests and benchmarks of single layers stand on: a connection to oneself.
package loopback

import (
	"net"
	"testing"
)

// Pair returns both ends of a TCP connection over loopback, closed when the test ends.
func Pair(tb testing.TB) (client, server net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp4", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		client.Close()
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}
