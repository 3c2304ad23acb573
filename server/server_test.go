package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/stack"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output collects what the server prints, and tells when it listens.
type output struct {
	mu     sync.Mutex
	text   strings.Builder
	listen chan string
	told   bool
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if _, rest, ok := strings.Cut(o.text.String(), "Listening on "); ok && !o.told && strings.Contains(rest, "\n") {
		o.told = true
		o.listen <- strings.Fields(rest)[0]
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// started runs a server in this process; the function it returns ends it and gives its output.
func started(t *testing.T, args ...string) (identity.Address, func() (string, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &output{listen: make(chan string, 1)}
	done := make(chan error, 1)
	go func() { done <- serve(ctx, append([]string{"-p", "0", "-B", "127.0.0.1"}, args...), out, io.Discard) }()
	var text string
	select {
	case text = <-out.listen:
	case err := <-done:
		cancel()
		t.Fatalf("the server ended with %v", err)
	}
	addr, err := identity.ParseAddress(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceValues(func() (string, error) {
		cancel()
		err := <-done
		return out.String(), err
	})
	t.Cleanup(func() { end() })
	return addr, end
}

func dialed(t *testing.T, addr identity.Address) transport.Session {
	t.Helper()
	s, err := stack.Dial(t.Context(), addr, stack.Config{Security: stack.Noise, Mux: stack.Yamux, Key: identity.Generate()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func params() control.Params {
	return control.Params{Test: "flood", Direction: control.Upload, Bytes: 100_000, Block: 1000, Connections: 1, Streams: 1, Stall: control.DefaultStall}
}

// TestServerGoesOn: peers that vanish, and peers that open streams and say nothing, beside one that works.
func TestServerGoesOn(t *testing.T) {
	addr, end := started(t)
	for range 5 { // scans and health checks
		conn, err := net.Dial("tcp4", addr.HostPort())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	mute := dialed(t, addr)
	for range 3 { // streams on which nothing follows
		for _, p := range []string{protocol.Control, protocol.Data, protocol.RR, protocol.Perf100} {
			if _, err := mute.Open(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := dialed(t, addr)
	running := make(chan struct{})
	p := params()
	p.Bytes, p.Duration, p.Interval = 0, time.Minute, 50*time.Millisecond
	vanished := make(chan struct{})
	go func() {
		defer close(vanished)
		c := control.Client{Clock: time.Now, Granted: func(control.Grant) { close(running) }}
		c.Run(context.Background(), []transport.Session{gone}, p)
	}()
	<-running
	time.Sleep(100 * time.Millisecond)
	gone.Close()
	<-vanished
	out, err := control.Client{Clock: time.Now}.Run(t.Context(), []transport.Session{dialed(t, addr)}, params())
	if err != nil || out.Peer.Received.Bytes != 100_000 {
		t.Errorf("beside them a run ends with %v", err)
	}
	mute.Close()
	text, err := end()
	if err != nil || !strings.Contains(text, "INCOMPLETE") || !strings.Contains(text, "100 kB") {
		t.Errorf("%v, it printed:\n%s", err, text)
	}
}

// TestDrain: a run that goes on when the server is told to end is ended in order, and printed.
func TestDrain(t *testing.T) {
	addr, end := started(t, "--drain-timeout", "0.2")
	s := dialed(t, addr)
	running := make(chan struct{})
	p := params()
	p.Bytes, p.Duration = 0, time.Minute
	result := make(chan error, 1)
	go func() {
		c := control.Client{Clock: time.Now, Granted: func(control.Grant) { close(running) }}
		out, err := c.Run(context.Background(), []transport.Session{s}, p)
		if out.Local == nil || out.Local.Sent.Bytes == 0 {
			t.Errorf("the client has nothing: %v", err)
		}
		result <- err
	}()
	<-running
	time.Sleep(100 * time.Millisecond)
	text, err := end()
	if err != nil || !strings.Contains(text, "INCOMPLETE: interrupted") {
		t.Errorf("%v, it printed:\n%s", err, text)
	}
	if err := <-result; err == nil {
		t.Error("the client thinks that its run was complete")
	}
}

func TestLogIsLimited(t *testing.T) {
	h := newLimitedHandler(&countingHandler{n: new(int)})
	for range 1000 {
		_ = h.Handle(context.Background(), record(time.Unix(100, 0)))
	}
	inner := h.(*limitedHandler).Handler.(*countingHandler)
	if *inner.n != logBurst {
		t.Errorf("%d of 1000 lines were written in one window, want %d", *inner.n, logBurst)
	}
	_ = h.Handle(context.Background(), record(time.Unix(200, 0)))
	if *inner.n != logBurst+2 {
		t.Errorf("the next window began with %d lines, want the note and the line", *inner.n-logBurst)
	}
}
