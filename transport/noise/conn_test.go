// Tests of the transport phase: that bytes arrive whole and in order whatever the sizes and
// workers, that a changed record is never delivered, and that everything that waits can be ended.

package noise

import (
	"bytes"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/chacha20poly1305"

	"muxperf/transport/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tcpPair returns both ends of a loopback connection.
func tcpPair(t testing.TB) (dialer, listener net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	if dialer, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if listener = <-accepted; listener == nil {
		t.Fatal("nothing was accepted")
	}
	t.Cleanup(func() { dialer.Close(); listener.Close() })
	return dialer, listener
}

func testAEAD(t testing.TB, b byte) cipher.AEAD {
	t.Helper()
	a, err := chacha20poly1305.New(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// channel returns two connections with keys in common, over the two ends.
func channel(t testing.TB, a, b net.Conn, workers int) (*Conn, *Conn) {
	t.Helper()
	there, back := testAEAD(t, 1), testAEAD(t, 2)
	ca, cb := newConn(a, there, back, workers), newConn(b, back, there, workers)
	t.Cleanup(func() { ca.Close(); cb.Close() })
	return ca, cb
}

func testKey(b byte) identity.PrivateKey { return identity.FromSeed([32]byte{b}) }

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// pattern is n bytes that repeat nowhere near.
func pattern(n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(1)).Read(b)
	return b
}

func TestTransferSizes(t *testing.T) {
	sizes := map[string][]int{
		"one byte each":     {1, 1, 1, 1, 1},
		"around a record":   {maxPlain - 1, maxPlain, maxPlain + 1, 2 * maxPlain, 2*maxPlain + 1},
		"around a batch":    {4 * maxPlain, 4*maxPlain + 1, batch, batch + 1},
		"large":             {3 << 20},
		"small after large": {1 << 20, 1, 2, 1 << 20, 3},
		"empty":             {0, 5, 0},
	}
	for name, writes := range sizes {
		for _, workers := range []int{1, 2, 4} {
			for _, readSize := range []int{100, 4096, 300_000} {
				t.Run(fmt.Sprintf("%s/%d workers/read %d", name, workers, readSize), func(t *testing.T) {
					a, b := tcpPair(t)
					checkTransfer(t, a, b, workers, readSize, writes)
				})
			}
		}
	}
}

func TestTransferOverPipe(t *testing.T) {
	a, b := net.Pipe()
	checkTransfer(t, a, b, 2, 1000, []int{1, 70_000, 400_000, 7})
}

// checkTransfer sends the writes one way, then checks that they came out the other, and the end.
func checkTransfer(t *testing.T, a, b net.Conn, workers, readSize int, writes []int) {
	t.Helper()
	ca, cb := channel(t, a, b, workers)
	var want []byte
	for _, n := range writes {
		want = append(want, pattern(n)...)
	}
	sent := make(chan error, 1)
	go func() {
		rest := want
		for _, n := range writes {
			if m, err := ca.Write(rest[:n]); err != nil || m != n {
				sent <- fmt.Errorf("Write of %d bytes = %d, %v", n, m, err)
				return
			}
			rest = rest[n:]
		}
		sent <- ca.Close()
	}()
	var got []byte
	buf := make([]byte, readSize)
	for {
		n, err := cb.Read(buf)
		got = append(got, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes arrived, want %d, or they differ", len(got), len(want))
	}
}

// The writer may reuse its memory as soon as Write has returned.
func TestWriteKeepsNothing(t *testing.T) {
	a, b := tcpPair(t)
	ca, cb := channel(t, a, b, 2)
	go func() {
		buf := make([]byte, 200_000)
		for i := range 50 {
			for j := range buf {
				buf[j] = byte(i)
			}
			if _, err := ca.Write(buf); err != nil {
				t.Error(err)
				break
			}
		}
		ca.Close()
	}()
	got, err := io.ReadAll(cb)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 50*200_000 {
		t.Fatalf("%d bytes arrived", len(got))
	}
	for i, c := range got {
		if c != byte(i/200_000) {
			t.Fatalf("byte %d is %d", i, c)
		}
	}
}

// Writes of several goroutines do not mix.
func TestConcurrentWriters(t *testing.T) {
	a, b := tcpPair(t)
	ca, cb := channel(t, a, b, 2)
	const writers, each, size = 4, 20, 150_000
	done := make(chan error, writers)
	for i := range writers {
		go func() {
			buf := bytes.Repeat([]byte{byte(i)}, size)
			for range each {
				if _, err := ca.Write(buf); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	block := make([]byte, size)
	for range writers * each {
		if _, err := io.ReadFull(cb, block); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(block, bytes.Repeat(block[:1], size)) {
			t.Fatal("two writes are mixed")
		}
	}
	for range writers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoncesEnd(t *testing.T) {
	a, b := tcpPair(t)
	ca, cb := channel(t, a, b, 2)
	ca.writer.nonce, cb.reader.nonce = maxNonce-1, maxNonce-1
	if _, err := ca.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := cb.Read(buf); err != nil || string(buf[:n]) != "last" {
		t.Fatalf("Read = %q, %v", buf[:n], err)
	}
	if _, err := ca.Write([]byte("x")); !errors.Is(err, errNonces) {
		t.Errorf("Write with the reserved nonce returned %v", err)
	}
	a.Write(append([]byte{0, 17}, make([]byte, 17)...))
	if _, err := cb.Read(buf); !errors.Is(err, errNonces) {
		t.Errorf("Read with the reserved nonce returned %v", err)
	}
}

func TestReadDeadlineIsNotFinal(t *testing.T) {
	a, b := tcpPair(t)
	ca, cb := channel(t, a, b, 2)
	cb.SetReadDeadline(time.Now().Add(-time.Second))
	buf := make([]byte, 10)
	if _, err := cb.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read after its deadline returned %v", err)
	}
	cb.SetReadDeadline(time.Time{})
	if _, err := ca.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	if n, err := cb.Read(buf); err != nil || string(buf[:n]) != "still here" {
		t.Fatalf("Read = %q, %v", buf[:n], err)
	}
}

// A peer that does not read stops the writer; its deadline, or Close, has to end that.
func TestStuckWriter(t *testing.T) {
	for _, size := range []int{1000, 1 << 20} { // sent by the writer itself, and by the flusher
		ends := map[string]func(*Conn){
			"deadline": func(c *Conn) { c.SetWriteDeadline(time.Now().Add(-time.Second)) },
			"close":    func(c *Conn) { c.Close() },
		}
		for name, end := range ends {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				a, b := net.Pipe()
				ca, _ := channel(t, a, b, 2)
				failed := make(chan error, 1)
				go func() {
					buf := make([]byte, size)
					for {
						if _, err := ca.Write(buf); err != nil {
							failed <- err
							return
						}
					}
				}()
				waitFor(t, func() bool { ca.writer.mu.Lock(); defer ca.writer.mu.Unlock(); return ca.writer.sending })
				end(ca)
				if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("Write returned %v", err)
				}
				if _, err := ca.Write([]byte("x")); err == nil {
					t.Error("Write after the failure succeeded")
				}
			})
		}
	}
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for !cond() {
		time.Sleep(time.Millisecond)
	}
}

func TestCloseEndsRead(t *testing.T) {
	a, b := tcpPair(t)
	ca, _ := channel(t, a, b, 2)
	failed := make(chan error, 1)
	go func() {
		_, err := ca.Read(make([]byte, 1))
		failed <- err
	}()
	if err := ca.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read returned %v", err)
	}
	if _, err := ca.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after Close returned %v", err)
	}
	if err := ca.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second Close returned %v", err)
	}
}

func TestCloseWrite(t *testing.T) {
	a, b := tcpPair(t)
	ca, cb := channel(t, a, b, 2)
	if _, err := ca.Write(pattern(500_000)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- ca.CloseWrite() }()
	if got, err := io.ReadAll(cb); err != nil || !bytes.Equal(got, pattern(500_000)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write after CloseWrite returned %v", err)
	}
	if _, err := cb.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := ca.Read(buf); err != nil || string(buf[:n]) != "answer" {
		t.Errorf("Read after CloseWrite = %q, %v", buf[:n], err)
	}
}

// A record costs no allocation once the buffers have grown.
func TestNoAllocations(t *testing.T) {
	a, b := tcpPair(t)
	ca, cb := channel(t, a, b, 2)
	small, large, buf := make([]byte, 100), make([]byte, 200_000), make([]byte, 300_000)
	round := func(msg []byte) {
		sent := make(chan struct{})
		go func() { ca.Write(msg); close(sent) }()
		if _, err := io.ReadFull(cb, buf[:len(msg)]); err != nil {
			t.Error(err)
		}
		<-sent
	}
	for _, msg := range [][]byte{small, large} {
		for range 20 {
			round(msg)
		}
		base := testing.AllocsPerRun(100, func() {
			sent := make(chan struct{})
			go func() { _ = len(msg); close(sent) }()
			<-sent
		})
		if n := testing.AllocsPerRun(100, func() { round(msg) }); n > base+0.5 {
			t.Errorf("a write of %d bytes allocates %.1f times, of which the test itself %.1f", len(msg), n, base)
		}
	}
}
