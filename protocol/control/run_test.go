package control

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/transport"
	"muxperf/transport/yamux"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testSession is a Session over yamux that names the protocol in one length byte and text.
type testSession struct {
	*yamux.Mux
	conn net.Conn
}

type testStream struct {
	transport.MuxStream
	protocol string
}

func (s testStream) Protocol() string { return s.protocol }

func (s *testSession) Open(ctx context.Context, protocol string) (transport.Stream, error) {
	ms, err := s.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	_, err = ms.Write(append([]byte{byte(len(protocol))}, protocol...))
	return testStream{ms, protocol}, err
}

func (s *testSession) Accept(ctx context.Context) (transport.Stream, error) {
	ms, err := s.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	var n [1]byte
	if _, err := io.ReadFull(ms, n[:]); err != nil {
		return nil, err
	}
	name := make([]byte, n[0])
	_, err = io.ReadFull(ms, name)
	return testStream{ms, string(name)}, err
}

func (s *testSession) Close() error                 { s.Mux.Close(); return s.conn.Close() }
func (s *testSession) Info() transport.Info         { return transport.Info{} }
func (s *testSession) TCPInfo() []transport.TCPInfo { return nil }

// A harness is a server, and sessions to it.
type harness struct {
	server   *Server
	sessions []transport.Session
	conns    []net.Conn // the clients' sockets
	results  chan result
}

type result struct {
	run *Run
	err error
}

func newHarness(t testing.TB, server *Server, connections int) *harness {
	t.Helper()
	server.Clock, server.Agent = time.Now, "server/test"
	h := &harness{server: server, results: make(chan result, 16)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := yamux.Config{}.WithDefaults(yamux.PlaintextFrame)
	var wg sync.WaitGroup
	var closers []func()
	for range connections {
		a, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		cm, err := yamux.Client(a, c)
		if err != nil {
			t.Fatal(err)
		}
		sm, err := yamux.Server(b, c)
		if err != nil {
			t.Fatal(err)
		}
		h.sessions, h.conns = append(h.sessions, &testSession{cm, a}), append(h.conns, a)
		ss := &testSession{sm, b}
		wg.Go(func() { h.serve(ss, &wg) })
		closers = append(closers, func() { cm.Close(); a.Close(); ss.Close() })
	}
	t.Cleanup(func() {
		for _, c := range closers {
			c()
		}
		wg.Wait()
	})
	return h
}

func (h *harness) serve(s *testSession, wg *sync.WaitGroup) {
	for {
		st, err := s.Accept(context.Background())
		if err != nil {
			return
		}
		switch st.Protocol() {
		case protocol.Control:
			wg.Go(func() {
				r, err := h.server.Serve(context.Background(), s, st)
				h.results <- result{r, err}
			})
		case protocol.Data:
			wg.Go(func() { _ = h.server.ServeData(context.Background(), s, st) })
		}
	}
}

func flood(change func(*Params)) Params {
	p := Params{Test: "flood", Direction: Upload, Bytes: 3_000_001, Block: 64 << 10, Connections: 1, Streams: 1, Stall: DefaultStall}
	if change != nil {
		change(&p)
	}
	return p
}

// endless is a flood that only something else can end.
func endless(d Direction) Params {
	return flood(func(p *Params) { p.Direction, p.Bytes, p.Duration, p.Interval = d, 0, time.Minute, time.Second })
}

func TestRunsAreExactInEveryShape(t *testing.T) {
	for _, tc := range []struct {
		name   string
		params Params
	}{
		{"upload", flood(nil)},
		{"download", flood(func(p *Params) { p.Direction = Download })},
		{"both ways", flood(func(p *Params) { p.Direction = Both })},
		{"verified", flood(func(p *Params) { p.Direction = Both; p.Verify = true })},
		{"one byte", flood(func(p *Params) { p.Bytes = 1; p.Verify = true })},
		{"one-byte blocks", flood(func(p *Params) { p.Bytes = 2000; p.Block = 1; p.Verify = true })},
		{"8 streams", flood(func(p *Params) { p.Streams = 8; p.Direction = Both; p.Verify = true })},
		{"3 connections of 4 streams", flood(func(p *Params) { p.Connections, p.Streams = 3, 4; p.Direction = Both })},
		{"more streams than bytes", flood(func(p *Params) { p.Bytes, p.Streams = 5, 16; p.Block = 1 })},
		{"a largest block", flood(func(p *Params) { p.Block = protocol.MaxBlock; p.Verify = true })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHarness(t, &Server{}, tc.params.Connections)
			out, err := Client{Agent: "client/test", Clock: time.Now}.Run(t.Context(), h.sessions, tc.params)
			if err != nil {
				t.Fatal(err)
			}
			served := <-h.results
			if served.err != nil {
				t.Fatalf("server: %v", served.err)
			}
			r := served.run
			if tc.params.Direction != Download {
				same(t, "upload", tc.params, out.Local.Sent, out.Peer.Received)
				same(t, "upload, as the server has it", tc.params, r.Peer.Sent, r.Local.Received)
			}
			if tc.params.Direction != Upload {
				same(t, "download", tc.params, out.Peer.Sent, out.Local.Received)
			}
		})
	}
}

// same compares what one end sent with what the other received.
func same(t *testing.T, name string, p Params, sent, received *Side) {
	t.Helper()
	if sent == nil || received == nil {
		t.Fatalf("%s: a side is missing: %v, %v", name, sent, received)
	}
	if sent.Bytes != p.Bytes || received.Bytes != p.Bytes {
		t.Errorf("%s: %d sent, %d received, %d asked for", name, sent.Bytes, received.Bytes, p.Bytes)
	}
	if received.Verified != p.Verify {
		t.Errorf("%s: verified is %t", name, received.Verified)
	}
	for i := range sent.Streams {
		if sent.Streams[i].Bytes != received.Streams[i].Bytes {
			t.Errorf("%s: stream %d: %d sent, %d received", name, i, sent.Streams[i].Bytes, received.Streams[i].Bytes)
		}
	}
}

func TestTimedRunWithIntervalsAndOmit(t *testing.T) {
	h := newHarness(t, &Server{}, 1)
	var live []measure.Interval
	c := Client{Clock: time.Now, Observer: Observer{Interval: func(_ bool, iv measure.Interval, _ transport.TCPInfo) { live = append(live, iv) }}}
	out, err := c.Run(t.Context(), h.sessions, flood(func(p *Params) {
		p.Bytes, p.Duration, p.Omit, p.Interval = 0, 400*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Side{out.Local.Sent, out.Peer.Received} {
		var sum, omitted uint64
		for _, iv := range s.Intervals {
			if iv.Omitted {
				omitted += iv.Bytes
			} else {
				sum += iv.Bytes
			}
		}
		if sum != s.Bytes || omitted != s.Omitted || s.Omitted == 0 || s.Window < 300*time.Millisecond {
			t.Errorf("intervals hold %d+%d bytes, the side %d+%d in %v", omitted, sum, s.Omitted, s.Bytes, s.Window)
		}
	}
	if whole := func(s *Side) uint64 { return s.Bytes + s.Omitted }; whole(out.Local.Sent) != whole(out.Peer.Received) {
		t.Errorf("%d bytes sent, %d received", whole(out.Local.Sent), whole(out.Peer.Received))
	}
	if len(live) == 0 {
		t.Error("no interval was shown live")
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server *Server
		client Client
		params Params
		code   string
	}{
		{"no token", &Server{Token: []byte("s3cret")}, Client{}, flood(nil), CodeToken},
		{"a wrong token", &Server{Token: []byte("s3cret")}, Client{Token: []byte("guess")}, flood(nil), CodeToken},
		{"too many streams", &Server{Limits: Limits{Streams: 3}}, Client{}, flood(func(p *Params) { p.Streams = 4 }), CodeLimit},
		{"no such test", &Server{}, Client{}, flood(func(p *Params) { p.Test = "dance" }), CodeParams},
		{"a huge block", &Server{}, Client{}, flood(func(p *Params) { p.Block = 1 << 30 }), CodeParams},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHarness(t, tc.server, 1)
			tc.client.Clock = time.Now
			out, err := tc.client.Run(t.Context(), h.sessions, tc.params)
			var a *Abort
			if !errors.As(err, &a) || a.Code != tc.code || out.Local != nil {
				t.Errorf("got %v, want a refusal with code %q", err, tc.code)
			}
		})
	}
}

func TestLimitsAreGrantedAndShown(t *testing.T) {
	h := newHarness(t, &Server{Token: []byte("x"), Limits: Limits{Bytes: 1000, Rate: 1e9, Duration: time.Minute}}, 1)
	out, err := Client{Clock: time.Now, Token: []byte("x")}.Run(t.Context(), h.sessions, flood(nil))
	if err != nil {
		t.Fatal(err)
	}
	if out.Peer.Received.Bytes != 1000 || len(out.Grant.Limits) != 3 {
		t.Errorf("%d bytes moved, limits %v", out.Peer.Received.Bytes, out.Grant.Limits)
	}
}

func TestOneClientTooMany(t *testing.T) {
	h := newHarness(t, &Server{Limits: Limits{Clients: 1}}, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	running := make(chan struct{})
	go func() {
		c := Client{Clock: time.Now, Granted: func(Grant) { close(running) }}
		_, err := c.Run(ctx, h.sessions[:1], endless(Upload))
		first <- err
	}()
	<-running
	_, err := Client{Clock: time.Now}.Run(t.Context(), h.sessions[1:], flood(nil))
	var a *Abort
	if !errors.As(err, &a) || a.Code != CodeLimit {
		t.Errorf("the second client got %v, want a refusal", err)
	}
	cancel(ErrInterrupted)
	<-first
}

// TestInterrupt: Ctrl-C ends a run in order, in every direction, and both ends keep what they have.
func TestInterrupt(t *testing.T) {
	for _, d := range []Direction{Upload, Download, Both} {
		t.Run(string(d), func(t *testing.T) {
			h := newHarness(t, &Server{}, 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			c := Client{Clock: time.Now, Observer: Observer{Interval: func(bool, measure.Interval, transport.TCPInfo) { cancel(ErrInterrupted) }}}
			p := endless(d)
			p.Interval = 50 * time.Millisecond
			out, err := c.Run(ctx, h.sessions, p)
			if !errors.Is(err, ErrInterrupted) || out.Peer == nil {
				t.Fatalf("%v, the peer's report: %v", err, out.Peer)
			}
			served := <-h.results
			r := served.run
			if served.err == nil || r.Local.Incomplete == "" || out.Local.Incomplete == "" {
				t.Errorf("server: %v; incomplete: %q and %q", served.err, r.Local.Incomplete, out.Local.Incomplete)
			}
			for _, pair := range [][2]*Side{{out.Local.Sent, r.Local.Received}, {r.Local.Sent, out.Local.Received}} {
				if pair[0] != nil && (pair[0].Bytes == 0 || pair[0].Bytes != pair[1].Bytes) {
					t.Errorf("%d bytes sent, %d received", pair[0].Bytes, pair[1].Bytes)
				}
			}
		})
	}
}

// TestPeerVanishes: the connection is cut in mid-run; both ends report what they have, at once.
func TestPeerVanishes(t *testing.T) {
	h := newHarness(t, &Server{}, 1)
	c := Client{Clock: time.Now, Observer: Observer{Interval: func(bool, measure.Interval, transport.TCPInfo) { h.conns[0].Close() }}}
	p := endless(Upload)
	p.Interval = 50 * time.Millisecond
	out, err := c.Run(t.Context(), h.sessions, p)
	if err == nil || out.Local == nil || out.Local.Sent.Bytes == 0 || out.Local.Incomplete == "" {
		t.Errorf("client: %v, %+v", err, out.Local)
	}
	served := <-h.results
	if r := served.run; served.err == nil || r.Local == nil || r.Local.Received.Bytes == 0 || r.Local.Incomplete == "" {
		t.Errorf("server: %v, %+v", served.err, r)
	}
}

// TestStall: the client's data streams stop taking anything; the run ends with the stall timeout.
func TestStall(t *testing.T) {
	h := newHarness(t, &Server{}, 1)
	h.sessions[0] = stuck{h.sessions[0]}
	p := endless(Upload)
	p.Stall = 1500 * time.Millisecond
	out, err := Client{Clock: time.Now}.Run(t.Context(), h.sessions, p)
	var a *Abort
	if !errors.As(err, &a) || a.Code != CodeStall || out.Local == nil {
		t.Errorf("got %v", err)
	}
	if served := <-h.results; served.err == nil || !strings.Contains(served.err.Error(), "stall") {
		t.Errorf("the server says %v", served.err)
	}
}

// stuck is a session whose data streams take no payload.
type stuck struct{ transport.Session }

func (s stuck) Open(ctx context.Context, p string) (transport.Stream, error) {
	st, err := s.Session.Open(ctx, p)
	if err == nil && p == protocol.Data {
		return &stuckStream{Stream: st, over: make(chan struct{})}, nil
	}
	return st, err
}

type stuckStream struct {
	transport.Stream
	header bool
	once   sync.Once
	over   chan struct{}
}

func (s *stuckStream) Write(b []byte) (int, error) {
	if !s.header {
		s.header = true
		return s.Stream.Write(b)
	}
	<-s.over
	return 0, context.DeadlineExceeded
}

func (s *stuckStream) SetWriteDeadline(time.Time) error {
	s.once.Do(func() { close(s.over) })
	return nil
}
