package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/tcp"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const echo = "/test/echo/1.0.0"

// serveEcho listens on network and serves echo on every stream of every session.
func serveEcho(t *testing.T, network, address string) identity.Address {
	t.Helper()
	key := identity.FromSeed([32]byte{1})
	cfg := Config{Key: key, Serve: func(p string) bool { return p == echo }, HandshakeTimeout: 2 * time.Second,
		WispPorts: map[int]string{7: echo}}
	l, err := tcp.Listen(t.Context(), network, address, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serveConn(ctx, conn, cfg, &wg) })
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); wg.Wait() })
	if network == "unix" {
		return identity.Address{Network: "unix", Path: address}
	}
	a, err := identity.ParseAddress(l.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func serveConn(ctx context.Context, conn net.Conn, cfg Config, wg *sync.WaitGroup) {
	s, err := Upgrade(ctx, conn, cfg)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	defer s.Close()
	for {
		st, err := s.Accept(ctx)
		if err != nil {
			return
		}
		wg.Go(func() {
			defer st.Close()
			buf := make([]byte, 1<<16)
			for {
				n, err := st.Read(buf)
				if _, werr := st.Write(buf[:n]); err != nil || werr != nil {
					return
				}
			}
		})
	}
}

func clientConfig(security, mux string) Config {
	return Config{Security: security, Mux: mux, Key: identity.FromSeed([32]byte{2}), HandshakeTimeout: 2 * time.Second}
}

// stacks is every combination.
func stacks() [][2]string {
	var out [][2]string
	for _, security := range []string{Noise, Plaintext} {
		for _, mux := range []string{Yamux, Wisp, None} {
			out = append(out, [2]string{security, mux})
		}
	}
	return out
}

func TestEveryStackOverTCPAndUnix(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = t.TempDir() + "/s"
		}
		addr := serveEcho(t, network, address)
		for _, st := range stacks() {
			t.Run(fmt.Sprintf("%s/%s+%s", network, st[0], st[1]), func(t *testing.T) {
				s, err := Dial(t.Context(), addr, clientConfig(st[0], st[1]))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				var wg sync.WaitGroup
				for i := range 3 {
					wg.Go(func() { roundTrip(t, s, i) })
				}
				wg.Wait()
				if _, err := s.Open(t.Context(), "/no/such/protocol"); !errors.Is(err, transport.ErrProtocol) {
					t.Errorf("an unknown protocol: %v, want ErrProtocol", err)
				}
				roundTrip(t, s, 9)
				info := s.Info()
				if secured := st[0] == Noise || st[1] == Yamux; secured != (info.RemotePeer != "") {
					t.Errorf("the peer's id is %q", info.RemotePeer)
				}
				if got := info.Stack.String(); got != st[0]+"+"+st[1] {
					t.Errorf("the stack is %s", got)
				}
				held, err := s.Open(t.Context(), echo)
				if err != nil {
					t.Fatal(err)
				}
				defer held.Close()
				if n := len(s.TCPInfo()); (network != "unix") != (n > 0) {
					t.Errorf("%d entries of TCP_INFO", n)
				}
			})
		}
	}
}

// roundTrip sends a few hundred kilobytes through an echo and compares.
func roundTrip(t *testing.T, s transport.Session, i int) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	st, err := s.Open(ctx, echo)
	if err != nil {
		t.Errorf("opening: %v", err)
		return
	}
	defer st.Close()
	want := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, 50_000)
	done := make(chan error, 1)
	go func() {
		_, err := st.Write(want)
		done <- err
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(st, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the echo differs, or broke off: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("writing: %v", err)
	}
}

func TestPeerIDIsChecked(t *testing.T) {
	addr := serveEcho(t, "tcp4", "127.0.0.1:0")
	right, wrong := identity.FromSeed([32]byte{1}).ID(), identity.FromSeed([32]byte{9}).ID()
	for _, security := range []string{Noise, Plaintext} {
		addr.Peer = right
		s, err := Dial(t.Context(), addr, clientConfig(security, Yamux))
		if err != nil {
			t.Fatalf("%s with the right peer id: %v", security, err)
		}
		s.Close()
		addr.Peer = wrong
		_, err = Dial(t.Context(), addr, clientConfig(security, Yamux))
		if !errors.Is(err, transport.ErrPeerID) || !strings.Contains(err.Error(), right.String()) || !strings.Contains(err.Error(), wrong.String()) {
			t.Errorf("%s with a wrong peer id: %v, want both ids named", security, err)
		}
	}
}

// stranger listens and greets each connection with text, if any, then reads on.
func stranger(t *testing.T, greeting string) identity.Address {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				io.WriteString(conn, greeting)
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	a, err := identity.ParseAddress(l.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestPortsThatAreNotOurs: every stranger costs one clear error within the handshake's deadline.
func TestPortsThatAreNotOurs(t *testing.T) {
	for _, tc := range []struct {
		name, greeting string
		want           error
	}{
		{"an HTTP server", "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", transport.ErrHandshake},
		{"an SSH server", "SSH-2.0-OpenSSH_9.2\r\n", transport.ErrHandshake},
		{"silence", "", context.DeadlineExceeded},
		{"garbage", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", transport.ErrHandshake},
	} {
		addr := stranger(t, tc.greeting)
		for _, st := range stacks() {
			if st[0] == Plaintext && st[1] == None {
				continue // nothing is said until a stream is opened
			}
			t.Run(tc.name+"/"+st[0]+"+"+st[1], func(t *testing.T) {
				cfg := clientConfig(st[0], st[1])
				cfg.HandshakeTimeout = 300 * time.Millisecond
				s, err := Dial(t.Context(), addr, cfg)
				if err == nil {
					s.Close()
					t.Fatal("a session was set up with a stranger")
				}
				if !errors.Is(err, tc.want) && !errors.Is(err, transport.ErrHandshake) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want it to wrap %v", err, tc.want)
				}
			})
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	addr, err := identity.ParseAddress(l.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), addr, clientConfig(Noise, Yamux)); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
}

// TestHostileFirstBytes: whatever a stranger says, the server closes the connection, and serves the
// next client.
func TestHostileFirstBytes(t *testing.T) {
	addr := serveEcho(t, "tcp4", "127.0.0.1:0")
	for _, first := range []string{
		"", "x", "\x00\x00\x00", "GET / HTTP/1.1\r\n\r\n", "GET nonsense", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"\x13/multistream/1.0.0\n", "\x13/multistream/1.0.0\n\x07/noise\n\xff\xff", "\x13/multistream/1.0.0\n\x07/noise\n\x00\x20" + strings.Repeat("A", 32) + "\x00\x01B",
		"\x13/multistream/1.0.0\n\x11/plaintext/2.0.0\n\x05AAAAA", "\x13/multistream/1.0.0\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x13/multistream/1.0.0\n\x11/plaintext/2.0.0\n\xff\xff\xff\xff\x0f",
	} {
		conn, err := net.Dial("tcp4", addr.HostPort())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, first)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %q the server did not close", first)
		}
		conn.Close()
	}
	s, err := Dial(t.Context(), addr, clientConfig(Noise, Yamux))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	roundTrip(t, s, 0)
}

func TestImpossibleStacks(t *testing.T) {
	for _, st := range [][2]string{{"tls", Yamux}, {Noise, "mplex"}, {"", ""}} {
		if err := Check(st[0], st[1]); err == nil {
			t.Errorf("%v was accepted", st)
		}
	}
}

func TestUnknownStreamsAreAnsweredOnTheClientToo(t *testing.T) {
	addr := serveEcho(t, "tcp4", "127.0.0.1:0")
	s, err := Dial(t.Context(), addr, clientConfig(Noise, Yamux))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept on a client with nothing to serve: %v", err)
	}
	s.Close()
	if _, err := s.Accept(t.Context()); err == nil {
		t.Error("Accept after Close gave a stream")
	}
}
