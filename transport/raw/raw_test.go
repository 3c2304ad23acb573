package raw

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"muxperf/transport"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener returns a loopback listener and a dialer to it.
func listener(t *testing.T) (net.Listener, func(context.Context) (net.Conn, error)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
}

func TestEachStreamIsAConnection(t *testing.T) {
	l, dial := listener(t)
	first, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := Client(first, dial)
	defer client.Close()
	seen := map[string]bool{}
	for range 3 {
		st, err := client.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server := Server(conn)
		in, err := server.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen[conn.RemoteAddr().String()] = true
		exchange(t, st, in)
		in.Close()
		if _, err := server.AcceptStream(t.Context()); err != io.EOF {
			t.Errorf("after its only stream an accepted bundle ends with %v, want io.EOF", err)
		}
	}
	if len(seen) != 3 || len(client.Conns()) != 3 {
		t.Errorf("3 streams used %d connections, of which %d are open", len(seen), len(client.Conns()))
	}
}

// exchange sends a message and an end of data one way, and an answer back after it.
func exchange(t *testing.T, a, b transport.MuxStream) {
	t.Helper()
	if _, err := a.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); err != nil || string(got) != "ping" {
		t.Fatalf("read %q, %v", got, err)
	}
	if _, err := b.Write([]byte("pong")); err != nil {
		t.Fatal(err)
	}
	if err := b.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(a); err != nil || string(got) != "pong" {
		t.Fatalf("read %q, %v", got, err)
	}
}

func TestResetIsSeenAsOne(t *testing.T) {
	l, dial := listener(t)
	first, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := Client(first, dial)
	defer client.Close()
	st, err := client.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	st.Reset()
	if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the peer of a reset stream reads %v, want a reset", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	_, dial := listener(t)
	first, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := Client(first, dial)
	waiting := make(chan error, 1)
	go func() {
		_, err := client.AcceptStream(context.Background())
		waiting <- err
	}()
	st, err := client.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	if err := <-waiting; err != io.EOF {
		t.Errorf("AcceptStream ended with %v, want io.EOF", err)
	}
	st.SetDeadline(time.Now().Add(time.Second))
	if _, err := st.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	if _, err := client.OpenStream(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("an open after Close: %v", err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestAcceptingSideCannotOpen(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	server := Server(b)
	defer server.Close()
	if _, err := server.AcceptStream(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := server.OpenStream(t.Context()); err == nil {
		t.Error("an accepted connection opened a stream")
	}
}
