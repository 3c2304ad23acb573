package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// echo listens and answers on every connection.
func echo(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func TestDialBlocking(t *testing.T) {
	for _, tc := range []struct{ network, address string }{
		{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"unix", filepath.Join(t.TempDir(), "s")},
	} {
		t.Run(tc.network+tc.address, func(t *testing.T) {
			conn, err := DialBlocking(t.Context(), tc.network, echo(t, tc.network, tc.address), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			b := make([]byte, 1<<20)
			go func() {
				_, _ = conn.Write(b)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			if got, err := io.ReadAll(conn); err != nil || len(got) != len(b) {
				t.Errorf("%d bytes of %d came back, %v", len(got), len(b), err)
			}
			if conn.LocalAddr() == nil || conn.RemoteAddr() == nil {
				t.Error("no addresses")
			}
		})
	}
}

// TestBlockingDeadline: a deadline, and a context, wake a thread that waits in the kernel.
func TestBlockingDeadline(t *testing.T) {
	conn, err := DialBlocking(t.Context(), "tcp", echo(t, "tcp", "127.0.0.1:0"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading past the deadline: %v", err)
	}
	if _, err := conn.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing past the deadline: %v", err)
	}
}

func TestBlockingFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := DialBlocking(t.Context(), "tcp", l.Addr().String(), Options{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	if _, err := DialBlocking(ctx, "tcp", echo(t, "tcp", "127.0.0.1:0"), Options{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a context that is over: %v", err)
	}
	// A listener whose backlog is full does not answer: the kernel's own retries last longer than the deadline.
	full := fullBacklog(t)
	short, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	if conn, err := DialBlocking(short, "tcp", full, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a peer that does not answer: %v, %v", conn, err)
	}
}

// fullBacklog is the address of a listener that takes nobody any more.
func fullBacklog(t *testing.T) string {
	t.Helper()
	l, err := Listen(t.Context(), "tcp", "127.0.0.1:0", Options{Backlog: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for range 64 {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the backlog does not fill up")
	return ""
}
