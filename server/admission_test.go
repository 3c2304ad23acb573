package main

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"muxperf/protocol/control"
	"muxperf/transport"
)

// TestHandshakesGiveWay: a newcomer has the place of the oldest, of the same address where that has its share.
func TestHandshakesGiveWay(t *testing.T) {
	h := newHandshakes(4, 2)
	begin := func(host string) (context.Context, func()) { return h.begin(t.Context(), host) }
	a1, doneA1 := begin("a")
	a2, doneA2 := begin("a")
	b1, doneB1 := begin("b")
	a3, doneA3 := begin("a") // over a's share
	if !errors.Is(context.Cause(a1), errCrowdedOut) || a2.Err() != nil || b1.Err() != nil || a3.Err() != nil {
		t.Errorf("a third of a: %v, %v, %v, %v", a1.Err(), a2.Err(), b1.Err(), a3.Err())
	}
	doneA1() // it was gone already
	_, doneC1 := begin("c")
	d1, doneD1 := begin("d") // over the whole
	if !errors.Is(context.Cause(a2), errCrowdedOut) || b1.Err() != nil || d1.Err() != nil {
		t.Errorf("a fifth in all: %v, %v, %v", a2.Err(), b1.Err(), d1.Err())
	}
	for _, done := range []func(){doneA2, doneB1, doneA3, doneC1, doneD1} {
		done()
	}
	if h.all.Len() != 0 || len(h.of) != 0 || h.crowded != 2 {
		t.Errorf("%d are left, of %v; %d gave way", h.all.Len(), h.of, h.crowded)
	}
}

type addressed struct {
	net.Conn
	addr string
}

func (a addressed) RemoteAddr() net.Addr { return a }
func (a addressed) Network() string      { return "tcp" }
func (a addressed) String() string       { return a.addr }

func TestHostOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8::1]:5": "2001:db8::/64",
		"[2001:db8::ffff:1]:9": "2001:db8::/64", "[fe80::1%eth0]:9": "fe80::/64", "@": "",
	} {
		if got := hostOf(addressed{addr: addr}); got != want {
			t.Errorf("%s counts for %q, want %q", addr, got, want)
		}
	}
}

// TestCrowdOfSilentClients: a thousand connections that say nothing do not keep a client out.
func TestCrowdOfSilentClients(t *testing.T) {
	addr, _ := started(t)
	for range 1000 {
		conn, err := net.DialTimeout("tcp4", addr.HostPort(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	out, err := control.Client{Clock: time.Now}.Run(t.Context(), []transport.Session{dialed(t, addr)}, params())
	if err != nil || out.Peer.Received.Bytes != 100_000 {
		t.Errorf("beside them a run ends with %v", err)
	}
}

// TestTooManyOfOneAddress: what is beyond the limit is closed, and the others go on.
func TestTooManyOfOneAddress(t *testing.T) {
	addr, _ := started(t, "--max-connections-per-address", "2")
	first := dialed(t, addr)
	second, err := net.Dial("tcp4", addr.HostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	third, err := net.Dial("tcp4", addr.HostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	_ = third.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third connection got %d bytes, %v", n, err)
	}
	if out, err := (control.Client{Clock: time.Now}).Run(t.Context(), []transport.Session{first}, params()); err != nil {
		t.Errorf("the first connection: %+v, %v", out, err)
	}
}
