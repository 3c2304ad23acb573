package yamux

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"muxperf/transport"
)

// hoarded makes a session whose server reads nothing unless told to, and whose client has sent n bytes on each of
// several streams, in writes of the given size, as far as they go.
func hoarded(t *testing.T, c Config, streams, n, block int) (server *Mux, accepted []transport.MuxStream) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, err := Client(conn, Config{}.WithDefaults(PlaintextFrame))
	if err != nil {
		t.Fatal(err)
	}
	server, err = Server(other, c.WithDefaults(PlaintextFrame))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	var opened []transport.MuxStream
	for range streams { // all of them first: a full session does not hear of new ones
		s, err := client.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, err := server.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		opened, accepted = append(opened, s), append(accepted, a)
	}
	for _, s := range opened {
		go func() {
			for sent := 0; sent < n; sent += block {
				if _, err := s.Write(bytes.Repeat([]byte{7}, block)); err != nil {
					return
				}
			}
			_ = s.CloseWrite()
		}()
	}
	return server, accepted
}

func charge(m *Mux) int {
	m.conn.mu.Lock()
	defer m.conn.mu.Unlock()
	return m.conn.charge
}

// settled waits until a session holds nothing more than before, which it does when it does not read.
func settled(t *testing.T, m *Mux) int {
	t.Helper()
	last, since := -1, time.Now()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if now := charge(m); now != last {
			last, since = now, time.Now()
		} else if now > 0 && time.Since(since) > 300*time.Millisecond {
			return now
		}
	}
	t.Fatal("it goes on and on")
	return 0
}

// TestSessionBuffer: streams that nobody reads fill the session to its bound and not further, by its own bound or
// by the process's, and every byte is there when they are read.
func TestSessionBuffer(t *testing.T) {
	const streams, each = 8, 2 << 20
	for _, tc := range []struct {
		name   string
		config Config
		bound  int
	}{
		{"session", Config{SessionBuffer: 3 << 20}, 3 << 20},
		{"process", Config{Budget: transport.NewBudget(2 << 20)}, 2 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, accepted := hoarded(t, tc.config, streams, each, 64<<10)
			if got, most := settled(t, server), tc.bound+PlaintextFrame+1024*frameOverhead; got < tc.bound || got > most {
				t.Errorf("it holds %d bytes, want %d to %d", got, tc.bound, most)
			}
			sums := make(chan int64, streams)
			for _, a := range accepted {
				go func() {
					n, _ := io.Copy(io.Discard, a)
					a.Close()
					sums <- n
				}()
			}
			for range streams {
				if n := <-sums; n != each {
					t.Errorf("%d of %d bytes were read", n, each)
				}
			}
			if left := charge(server); left != 0 || tc.config.Budget.Used() != 0 {
				t.Errorf("%d bytes are still counted, %d in the budget", left, tc.config.Budget.Used())
			}
		})
	}
}

// TestSmallFrames: frames of one byte are counted for what they cost.
func TestSmallFrames(t *testing.T) {
	const bound = 64 << 10
	server, accepted := hoarded(t, Config{SessionBuffer: bound}, 1, 10_000, 1)
	if got := settled(t, server); got < bound || got > bound+2*frameOverhead {
		t.Errorf("%d bytes are counted at a bound of %d", got, bound)
	}
	if n, err := io.Copy(io.Discard, accepted[0]); n != 10_000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestClosedWhileFull: closing wakes the reader and gives the budget back.
func TestClosedWhileFull(t *testing.T) {
	budget := transport.NewBudget(1 << 30)
	server, accepted := hoarded(t, Config{SessionBuffer: 1 << 20, Budget: budget}, 2, 2<<20, 64<<10)
	settled(t, server)
	server.Close()
	if _, err := accepted[0].Read(make([]byte, 1)); err == nil {
		_, err = io.Copy(io.Discard, accepted[0])
		if err == nil {
			t.Error("a stream of a closed session ended in order")
		}
	}
	if budget.Used() != 0 {
		t.Errorf("%d bytes are still in the budget", budget.Used())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := server.OpenStream(ctx); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("opening a stream of a closed session: %v", err)
	}
}

// FuzzBounded: whatever a peer sends, in whatever pieces, is counted as never less than nothing, and given back.
func FuzzBounded(f *testing.F) {
	frame := func(kind byte, flags uint16, id, length uint32, body int) []byte {
		b := []byte{0, kind}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = binary.BigEndian.AppendUint32(b, id)
		b = binary.BigEndian.AppendUint32(b, length)
		return append(b, make([]byte, body)...)
	}
	f.Add(append(frame(1, 1, 1, 0, 0), frame(0, 0, 1, 10, 10)...), 3)
	f.Add(append(frame(0, 1, 3, 5, 5), frame(0, 8, 3, 0xffffffff, 20)...), 1)
	f.Fuzz(func(t *testing.T, wire []byte, piece int) {
		budget := transport.NewBudget(1)
		b := newBounded(nil, 1<<20, budget)
		piece = max(1, min(piece, 1<<16))
		for rest := wire; len(rest) > 0; {
			n := min(piece, len(rest))
			b.follow(rest[:n])
			rest = rest[n:]
			if b.charge < 0 || b.charge > len(wire)*(1+frameOverhead) || int64(b.charge) != budget.Used() {
				t.Fatalf("%d bytes of the peer are counted as %d, in the budget as %d", len(wire), b.charge, budget.Used())
			}
			b.took(b.id, n/2)
		}
		for id := range b.streams {
			b.forget(id)
		}
		if b.charge != 0 || budget.Used() != 0 {
			t.Fatalf("%d bytes are left", b.charge)
		}
	})
}

// breaking is a connection whose reading fails after a while, as one does whose record does not decrypt.
type breaking struct {
	net.Conn
	left int
	err  error
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.err
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestCauseOfAReset: a stream tells why its session broke, and not only that it did.
func TestCauseOfAReset(t *testing.T) {
	near, far := net.Pipe()
	broke := errors.New("a record does not decrypt")
	client, err := Client(near, Config{}.WithDefaults(PlaintextFrame))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := Server(&breaking{Conn: far, left: 100_000, err: broke}, Config{}.WithDefaults(PlaintextFrame))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s, err := client.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := s.Write(make([]byte, 10_000)); err != nil {
				return
			}
		}
	}()
	a, err := server.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, a); !errors.Is(err, transport.ErrReset) || !errors.Is(err, broke) {
		t.Errorf("the stream ended with %v", err)
	}
}
