// The target behind a Wisp server: what it counts is the receiver's truth for every Wisp cell, whatever the
// peers say.

package run

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// A deed is what a target does with what arrives.
type deed int

const (
	drop    deed = iota // leave it in the kernel
	discard             // read it, as any receiver has to
	echo                // send it back
)

// A Target discards or echoes what arrives on any number of connections, and counts it.
type Target struct {
	listener net.Listener
	does     deed
	wg       sync.WaitGroup

	mu          sync.Mutex
	conns       map[net.Conn]struct{}
	bytes       uint64
	first, last time.Time
}

// NewTarget listens on a free loopback port.
func NewTarget(does deed) (*Target, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &Target{listener: l, does: does, conns: map[net.Conn]struct{}{}}
	t.wg.Go(t.accept)
	return t, nil
}

// Addr is host:port.
func (t *Target) Addr() string { return t.listener.Addr().String() }

func (t *Target) accept() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return
		}
		t.mu.Lock()
		t.conns[conn] = struct{}{}
		t.mu.Unlock()
		t.wg.Go(func() { t.serve(conn) })
	}
}

// serve reads to the end; an echo server that the peer does not read from stops reading.
func (t *Target) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		t.mu.Lock()
		delete(t.conns, conn)
		t.mu.Unlock()
	}()
	buf := make([]byte, 128<<10)
	read := conn.Read
	if t.does == drop {
		read = discarding(conn)
	}
	for {
		n, err := read(buf)
		if n > 0 {
			t.count(n)
			if t.does == echo {
				if _, err := conn.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func (t *Target) count(n int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes == 0 {
		t.first = now
	}
	t.last = now
	t.bytes += uint64(n)
}

// Counted is how much has arrived, and in how long.
func (t *Target) Counted() (bytes uint64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, t.last.Sub(t.first)
}

// Close ends every connection.
func (t *Target) Close() {
	t.listener.Close()
	t.mu.Lock()
	for c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// rawAgain measures the yardstick once more, since the first time may have been a slow moment of the machine,
// and returns the better.
func (m *Runner) rawAgain() float64 {
	for range 3 {
		if raw, err := RawTCP(context.Background(), 300*time.Millisecond); err == nil {
			m.RawTCP = max(m.RawTCP, raw)
		}
	}
	return m.RawTCP
}

// RawTCP measures how fast this process floods itself over loopback, in bits per second: no peer that is
// real is much faster.
func RawTCP(ctx context.Context, d time.Duration) (float64, error) {
	t, err := NewTarget(discard)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", t.Addr())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d))
	block := make([]byte, 256<<10)
	for {
		if _, err := conn.Write(block); err != nil {
			break
		}
	}
	bytes, took := t.Counted()
	if took <= 0 {
		return 0, io.ErrNoProgress
	}
	return float64(bytes) * 8 / took.Seconds(), nil
}
