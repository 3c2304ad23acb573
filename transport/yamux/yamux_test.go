package yamux

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"muxperf/transport"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both ends of a session over loopback TCP.
func pair(t *testing.T, c Config) (client, server *Mux) {
	t.Helper()
	a, b := connPair(t)
	client, err := Client(a, c)
	if err != nil {
		t.Fatal(err)
	}
	server, err = Server(b, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func connPair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func streams(t *testing.T, client, server *Mux) (transport.MuxStream, transport.MuxStream) {
	t.Helper()
	a, err := client.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := server.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestBytesArriveWholeAndHalfCloseWorks(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
	}{
		{"noise frames", Config{}.WithDefaults(NoiseFrame)},
		{"plaintext frames", Config{}.WithDefaults(PlaintextFrame)},
		{"smallest window", Config{StreamWindow: 256 << 10, MaxWindow: 256 << 10}.WithDefaults(PlaintextFrame)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pair(t, tc.c)
			a, b := streams(t, client, server)
			want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB, above every first window but one
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := a.Write(want); err != nil {
					t.Error(err)
				}
				if err := a.CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			got, err := io.ReadAll(b)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d of %d bytes arrived, %v", len(got), len(want), err)
			}
			if _, err := b.Write([]byte("answer")); err != nil {
				t.Error(err)
			}
			b.CloseWrite()
			if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
				t.Errorf("after the half-close %q came back, %v", got, err)
			}
			wg.Wait()
		})
	}
}

func TestResetDeadlineAndEnd(t *testing.T) {
	client, server := pair(t, Config{}.WithDefaults(PlaintextFrame))
	a, b := streams(t, client, server)
	a.Reset()
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, transport.ErrReset) {
		t.Errorf("a reset stream reads %v, want ErrReset", err)
	}
	a, _ = streams(t, client, server)
	a.SetReadDeadline(time.Now())
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past its deadline a stream reads %v, want ErrDeadlineExceeded", err)
	}
	client.Close()
	if _, err := server.AcceptStream(t.Context()); err != io.EOF {
		t.Errorf("after the peer's end AcceptStream says %v, want io.EOF", err)
	}
}

// TestPeerEndsWithReset: go-libp2p closes its sockets with SO_LINGER 0, so its last word is a TCP RST.
func TestPeerEndsWithReset(t *testing.T) {
	a, b := connPair(t)
	server, err := Server(b, Config{}.WithDefaults(PlaintextFrame))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	io.ReadFull(a, make([]byte, 12)) // its first ping
	a.(*net.TCPConn).SetLinger(0)
	a.Close()
	if _, err := server.AcceptStream(t.Context()); err != io.EOF {
		t.Errorf("after a TCP RST AcceptStream says %v, want io.EOF", err)
	}
}

// TestKnownBytes replays what a go-libp2p peer and what a rust-libp2p peer put on the wire to open
// a stream (the first with a window update, the second with data), and reads what we answer.
func TestKnownBytes(t *testing.T) {
	for _, tc := range []struct{ name, opening string }{
		{"go: window update with SYN, then data", "00010001 00000001 00000000  00000000 00000001 00000003 616263"},
		{"rust: data with SYN", "00000001 00000001 00000003 616263"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := connPair(t)
			server, err := Server(b, Config{}.WithDefaults(PlaintextFrame))
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			opening, err := hex.DecodeString(strings.ReplaceAll(tc.opening, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Write(opening); err != nil {
				t.Fatal(err)
			}
			st, err := server.AcceptStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 3)
			if _, err := io.ReadFull(st, got); err != nil || string(got) != "abc" {
				t.Fatalf("read %q, %v", got, err)
			}
			frames := make([]byte, 24) // a ping with SYN, and the window update that acknowledges
			if _, err := io.ReadFull(a, frames); err != nil {
				t.Fatal(err)
			}
			ping, ack := frames[:12], frames[12:]
			if ping[1] != 2 {
				ping, ack = ack, ping
			}
			if hex.EncodeToString(ping[:4]) != "00020001" || hex.EncodeToString(ack[:8]) != "0001000200000001" {
				t.Errorf("answered % x and % x", ping, ack)
			}
		})
	}
}

// FuzzServer feeds a session what a hostile peer might send. It must end, and not panic: go-yamux
// catches its own panics and prints them, so the test looks at what the session ends with.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		"000100010000000100000000000000000000000100000003616263",
		"00020001000000000000002a", "00030000000000000000000", "ff",
		"000000010000000100400000", "000100080000000100000000", "00000004000000010000000141",
	} {
		b, _ := hex.DecodeString(seed)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := net.Pipe()
		server, err := Server(b, Config{StreamWindow: 256 << 10, MaxStreams: 16}.WithDefaults(PlaintextFrame))
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, a)
		go func() {
			a.Write(data)
			a.Close()
		}()
		for {
			st, err := server.AcceptStream(t.Context())
			if err != nil {
				if strings.Contains(err.Error(), "panic") {
					t.Errorf("the session panicked: %v", err)
				}
				break
			}
			st.SetDeadline(time.Now().Add(time.Second))
			io.Copy(io.Discard, st)
			st.Reset()
		}
		server.Close()
	})
}
