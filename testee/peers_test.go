// Peers that misbehave, against every engine, on TCP and Unix sockets: they cost a bounded amount of memory, hurt
// nobody else, and leave nothing behind.

package testee

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// onEach runs a test with every engine on a TCP and on a Unix socket, all at the same time: most of it is
// waiting.
func onEach(t *testing.T, test func(t *testing.T, engine, spec string)) {
	each(t, func(t *testing.T, engine string) {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network, func(t *testing.T) {
				t.Parallel()
				spec := "127.0.0.1:0"
				if network == "unix" {
					spec = "unix:" + filepath.Join(t.TempDir(), "s")
				}
				test(t, engine, spec)
			})
		}
	})
}

// onEachPolicy does that with both policies.
func onEachPolicy(t *testing.T, test func(t *testing.T, policy, engine, spec string)) {
	for _, policy := range []string{StallBlock, StallDrop} {
		t.Run(policy, func(t *testing.T) {
			onEach(t, func(t *testing.T, engine, spec string) { test(t, policy, engine, spec) })
		})
	}
}

// until waits for what is sure to come.
func until(t *testing.T, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !there(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// answered is one round trip.
func answered(t *testing.T, te *Testee) {
	t.Helper()
	conn := dial(t, te)
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Errorf("another connection is not served: %v", err)
	}
}

// endless is more than any peer here sends.
const endless = math.MaxInt

// A deafPeer sends and does not read. With an honest echo its sending comes to a standstill, which cut ends.
type deafPeer struct {
	net.Conn
	sent chan int
}

// deaf starts a peer that sends up to limit bytes.
func deaf(t *testing.T, te *Testee, limit int) *deafPeer {
	t.Helper()
	p := &deafPeer{dial(t, te), make(chan int, 1)}
	go func() {
		n := 0
		for block := make([]byte, 1<<16); n < limit; {
			m, err := p.Write(block[:min(len(block), limit-n)])
			n += m
			if err != nil {
				break
			}
		}
		p.sent <- n
	}()
	return p
}

// cut ends a standstill and returns how much was sent.
func (p *deafPeer) cut() int {
	p.SetWriteDeadline(time.Unix(1, 0))
	return <-p.sent
}

func (p *deafPeer) closeWrite() { p.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// TestDeafPeersCostBoundedMemory: what a testee has read and neither written nor dropped is in its memory.
func TestDeafPeersCostBoundedMemory(t *testing.T) {
	const (
		peers    = 5
		buffered = 256 << 10 // the most that an engine reads at once
		dropCap  = 300 << 10 // with StallDrop
	)
	onEachPolicy(t, func(t *testing.T, policy, engine, spec string) {
		te := start(t, spec, Config{Engine: engine, OnStall: policy, StallCap: dropCap})
		most := int64(peers * buffered)
		if policy == StallDrop {
			most = peers * (dropCap + buffered)
		}
		var all []*deafPeer
		for range peers {
			all = append(all, deaf(t, te, endless))
		}
		until(t, "a stall of every peer", func() bool { return te.Stats().Stalls == peers })
		var sent []int
		var sum int64
		for _, p := range all {
			sent = append(sent, p.cut())
			sum += int64(sent[len(sent)-1])
		}
		if policy == StallDrop {
			until(t, "all that was sent", func() bool { return te.Stats().In == sum })
		}
		s := te.Stats()
		if held := s.In - s.Out - s.Dropped; held > most || held < 1 {
			t.Errorf("%d bytes are in memory for %d peers, want up to %d: %+v", held, peers, most, s)
		}
		if (s.Dropped > 0) != (policy == StallDrop) {
			t.Errorf("%d bytes were dropped", s.Dropped)
		}
		answered(t, te)
		for i, p := range all {
			p.closeWrite()
			if got, err := io.Copy(io.Discard, p); err != nil || policy == StallBlock && got != int64(sent[i]) {
				t.Errorf("a peer that reads in the end got %d of %d bytes, %v", got, sent[i], err)
			}
		}
		until(t, "the end of every connection", func() bool { return te.Stats().Open == 0 })
		if s := te.Stats(); s.In != s.Out+s.Dropped || s.Stalls != peers {
			t.Errorf("in the end bytes are unaccounted for: %+v", s)
		}
	})
}

// TestDeafPeersGoAway: reset or closed while their echo waits, they leave nothing behind.
func TestDeafPeersGoAway(t *testing.T) {
	onEachPolicy(t, func(t *testing.T, policy, engine, spec string) {
		te := start(t, spec, Config{Engine: engine, OnStall: policy, StallCap: 1 << 16})
		var all []*deafPeer
		for range 4 {
			all = append(all, deaf(t, te, endless))
		}
		until(t, "a stall of every peer", func() bool { return te.Stats().Stalls == 4 })
		for i, p := range all {
			p.cut()
			if tcp, ok := p.Conn.(*net.TCPConn); ok && i%2 == 0 {
				tcp.SetLinger(0) // a reset
			}
			p.Close()
		}
		until(t, "the end of every connection", func() bool { return te.Stats().Open == 0 })
		answered(t, te)
	})
}

// TestServingEndsBesideDeafPeers: a peer that does not read does not keep a testee from ending.
func TestServingEndsBesideDeafPeers(t *testing.T) {
	onEach(t, func(t *testing.T, engine, spec string) {
		te := start(t, spec, Config{Engine: engine}) // its clean-up waits for the end, and wants nothing open
		p := deaf(t, te, endless)
		until(t, "a stall", func() bool { return te.Stats().Stalls == 1 })
		t.Cleanup(func() { p.cut() })
	})
}

// TestHalfClosed: a peer that has sent its end of data gets every byte and then the testee's, also where it
// reads late, or sends nothing at all.
func TestHalfClosed(t *testing.T) {
	onEach(t, func(t *testing.T, engine, spec string) {
		te := start(t, spec, Config{Engine: engine})
		var wg sync.WaitGroup
		for _, size := range []int{0, 1, 1000, 1 << 20, 8 << 20} {
			p := deaf(t, te, size)
			wg.Go(func() {
				if size <= 1000 { // these fit into any buffer: everything is sent before the first byte is read
					p.sent <- <-p.sent
					p.closeWrite()
				} else {
					go func() {
						p.sent <- <-p.sent
						p.closeWrite()
					}()
				}
				got, err := io.Copy(io.Discard, p)
				if sent := <-p.sent; err != nil || got != int64(size) || sent != size {
					t.Errorf("of %d bytes %d were sent and %d came back, %v", size, sent, got, err)
				}
			})
		}
		wg.Wait()
		until(t, "the end of every connection", func() bool { return te.Stats().Open == 0 })
	})
}

// TestClosedAtOnce: connections that end before they are accepted, or say nothing.
func TestClosedAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, engine, spec string) {
		te := start(t, spec, Config{Engine: engine})
		for i := range 100 {
			conn := dial(t, te)
			if tcp, ok := conn.(*net.TCPConn); ok && i%2 == 0 {
				tcp.SetLinger(0)
			}
			conn.Close()
		}
		answered(t, te)
		until(t, "the end of every connection", func() bool { return te.Stats().Open == 0 })
	})
}

// TestFreePort: port 0 gives each testee a port of its own, which another cannot have meanwhile.
func TestFreePort(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		first := start(t, "127.0.0.1:0", Config{Engine: engine})
		second := start(t, "127.0.0.1:0", Config{Engine: engine})
		for _, te := range []*Testee{first, second} {
			if te.Addr().(*net.TCPAddr).Port == 0 {
				t.Errorf("%s is no address to dial", te.Addr())
			}
			answered(t, te)
		}
		if first.Addr().String() == second.Addr().String() {
			t.Errorf("two testees are at %s", first.Addr())
		}
		s, err := ParseSpec(first.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(t.Context(), s, Config{Engine: engine}); err == nil {
			t.Errorf("two testees may listen at %s", first.Addr())
		}
	})
}

// TestPathOfAnEndedServer: a socket that nobody listens on is replaced, and one's own is gone in the end.
func TestPathOfAnEndedServer(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("the stale socket is not there: %v", err)
		}
		s, err := ParseSpec("unix:" + path)
		if err != nil {
			t.Fatal(err)
		}
		te, err := Listen(t.Context(), s, Config{Engine: engine})
		if err != nil {
			t.Fatalf("a stale socket is in the way: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- te.Serve(ctx) }()
		answered(t, te)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket outlives its testee: %v", err)
		}
	})
}
