// Serving: connections become sessions, sessions bring streams, and each stream is served by its
// protocol. One client's trouble never reaches another: every connection and every stream has a
// goroutine, a deadline and a log line of its own, and none of them can end the server.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muxperf/internal/results"
	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/transport"
	"muxperf/transport/stack"
	"muxperf/transport/tcp"
)

// A service serves one server's clients.
type service struct {
	stack   stack.Config
	control *control.Server
	log     *slog.Logger
	dialect bool // /perf/1.0.0 with the 16-byte header
	limits  serviceLimits

	printer     *printer
	command     []string
	environment map[string]string
	tuning      map[string]string
	oneOff      bool
	enough      context.CancelFunc // ends accepting

	handshakes *handshakes
	perAddress addressCounter
	sessions   sessionSet
	mu         sync.Mutex
	pages      map[*control.Run]*page // of runs that go on
	strangers  atomic.Uint64          // connections that never spoke one of our protocols
	wg         sync.WaitGroup
}

// serviceLimits bound what clients can hold.
type serviceLimits struct {
	perAddress int           // connections of one client address; 0: no limit
	idle       time.Duration // a session without a stream for so long is closed; 0: never
	rate       float64       // bits per second that a foreign protocol may move; 0: no limit
	duration   time.Duration // how long a foreign protocol may run; 0: no limit
	bytes      uint64        // how many bytes it may move each way; 0: no limit
}

// accept takes connections from l until ctx is done; they are served until serving is done.
func (s *service) accept(ctx, serving context.Context, l *tcp.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	pause := 5 * time.Millisecond
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil && tcp.Transient(err):
			// The descriptor table is full, or memory is short: what runs now will free some.
			s.log.Warn("cannot accept connections for the moment", "error", err, "again in", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, time.Second)
			continue
		case err != nil:
			return fmt.Errorf("accepting connections on %s: %w", l.Addr(), err)
		}
		pause = 5 * time.Millisecond
		s.admit(serving, conn)
	}
}

// admit starts serving a connection if the limits allow it; otherwise it is closed at once.
func (s *service) admit(ctx context.Context, conn net.Conn) {
	host := hostOf(conn)
	if !s.perAddress.enter(host, s.limits.perAddress) {
		conn.Close()
		return
	}
	s.wg.Go(func() {
		defer s.perAddress.leave(host)
		s.serveConn(ctx, conn, host)
	})
}

// serveConn sets up a session and serves its streams until it ends.
func (s *service) serveConn(ctx context.Context, conn net.Conn, host string) {
	settingUp, done := s.handshakes.begin(ctx, host)
	session, err := stack.Upgrade(settingUp, conn, s.stack)
	done()
	if err != nil {
		s.logHandshake(conn, err)
		return
	}
	info := session.Info()
	s.log.Debug("connected", "client", info.Remote, "stack", info.Stack.String(), "peer", info.RemotePeer)
	var streams sync.WaitGroup
	busy := func() bool {
		c, ok := session.(transport.StreamCounter)
		return ok && c.Streams() > 0
	}
	active := s.sessions.add(s.limits.idle, busy, func() { session.Close() })
	defer s.sessions.remove(active)
	for {
		st, err := session.Accept(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				s.log.Debug("the session ended", "client", info.Remote, "error", err)
			}
			break
		}
		active.enter()
		streams.Go(func() {
			defer active.leave()
			s.serveStream(ctx, session, st)
		})
	}
	if ctx.Err() == nil {
		session.Close() // its streams cannot move any more
	}
	streams.Wait()
	session.Close()
}

// logHandshake says what went wrong, quietly where it is a stranger's fault: a health check or a port
// scan is no news.
func (s *service) logHandshake(conn net.Conn, err error) {
	if errors.Is(err, stack.ErrNotSpoken) {
		s.strangers.Add(1)
		return
	}
	s.log.Debug("a connection could not be set up", "client", conn.RemoteAddr(), "error", err)
}

// serveStream serves one stream by its protocol.
func (s *service) serveStream(ctx context.Context, session transport.Session, st transport.Stream) {
	defer st.Close()
	switch st.Protocol() {
	case protocol.Control:
		s.serveControl(ctx, session, st)
	case protocol.Data:
		if err := s.control.ServeData(ctx, session, st); err != nil {
			s.log.Debug("a data stream was not taken", "client", session.Info().Remote, "error", err)
		}
	default:
		s.serveForeign(ctx, session, st)
	}
}

// serveControl conducts one run of our own exchange.
func (s *service) serveControl(ctx context.Context, session transport.Session, st transport.Stream) {
	started := time.Now()
	run, err := s.control.Serve(ctx, session, st)
	if run == nil {
		if err != nil && !errors.Is(err, io.EOF) {
			s.log.Info("no run", "client", session.Info().Remote, "reason", err)
		}
		return
	}
	r := s.result(run.Client, protocol.Control, started)
	results.Granted(r, run.Grant)
	results.Finished(r, run.Local, run.Peer, err)
	r.Peer.Agent = run.Request.Agent
	s.pageOf(run).end(r)
	s.finished()
}

// result is what is known about a run from its beginning.
func (s *service) result(info transport.Info, protocol string, started time.Time) *report.Result {
	r := results.New("server", report.Flood, protocol, info)
	r.Started, r.Command, r.Environment, r.Tuning = started, s.command, s.environment, s.tuning
	return r
}

// pageOf is the page of a run of our own exchange; it is opened when the run begins.
func (s *service) pageOf(run *control.Run) *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	pg := s.pages[run]
	if pg == nil {
		return s.printer.open(run.Client.Remote)
	}
	delete(s.pages, run)
	return pg
}

// observeRun opens the page of a run that begins.
func (s *service) observeRun(run *control.Run) control.Observer {
	pg := s.printer.open(run.Client.Remote)
	s.mu.Lock()
	s.pages[run] = pg
	s.mu.Unlock()
	r := s.result(run.Client, protocol.Control, time.Now())
	results.Granted(r, run.Grant)
	pg.start(r)
	return control.Observer{Interval: func(received bool, iv measure.Interval, tcp transport.TCPInfo) {
		direction, at := "download", "sender"
		if received {
			direction, at = "upload", "receiver"
		}
		pg.interval(iv, direction, at, tcp)
	}}
}

// finished counts a run's end.
func (s *service) finished() {
	s.printer.close()
	if s.oneOff {
		s.enough()
	}
}

// serves reports whether a stream protocol is one of ours.
func serves(p string) bool {
	switch p {
	case protocol.Control, protocol.Data, protocol.Perf010, protocol.Perf100, protocol.RR,
		protocol.Echo, protocol.Discard, protocol.Chargen:
		return true
	}
	return false
}

// wispPorts are the built-in Wisp destinations that need no negotiation.
func wispPorts() map[int]string {
	return map[int]string{7: protocol.Echo, 9: protocol.Discard, 19: protocol.Chargen}
}

// clock is the one that measures.
func clock() measure.Clock { return time.Now }
