// Every state of the exchange, at both ends, and every way in which the peer can fail in it. The ends are the real
// ones; the connection between them lets the exchange come to the chosen message and fails in its place. Time is
// synctest's, so that the true deadlines pass at once, and a goroutine that stays behind fails the test.
package control

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"muxperf/protocol"
	"muxperf/transport"
)

const faultStall = 5 * time.Second

// A fault is what becomes of a message and of the connection after it. It is called with the world locked.
type fault struct {
	name   string
	change func(message []byte) []byte // what is delivered in its place
	after  func(*world)
	wire   bool // the end under test sees something malformed
}

func freeze(w *world) { w.frozen = true }
func cut(w *world)    { w.cut = true }

func nothing([]byte) []byte { return nil }

// frame is a frame that claims to have n bytes.
func frame(n uint32, t Type, body string) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, n), byte(t)), body...)
}

func faults() []fault {
	return []fault{
		{"silent", nothing, freeze, false},
		{"cut", nothing, cut, false},
		{"reset", nothing, func(w *world) { w.broken = syscall.ECONNRESET }, false},
		{"truncated and cut", func(b []byte) []byte { return b[:len(b)-1] }, cut, false},
		{"truncated and silent", func(b []byte) []byte { return b[:len(b)-1] }, freeze, false},
		{"garbage", func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, freeze, true},
		{"oversized", func(b []byte) []byte { return frame(maxFrame+1, Type(b[4]), "{") }, freeze, true},
		{"empty frame", func(b []byte) []byte { return frame(0, Type(b[4]), "") }, freeze, true},
		{"unknown message", func([]byte) []byte { return frame(3, 99, "{}") }, freeze, true},
		{"wrong message", func(b []byte) []byte {
			if Type(b[4]) == TypeGreeting {
				return frame(3, TypeRequest, "{}")
			}
			return frame(3, TypeGreeting, "{}")
		}, freeze, true},
		{"not JSON", func(b []byte) []byte { return frame(3, Type(b[4]), "}{") }, freeze, true},
	}
}

// A state is a message that an end waits for, and for how long at most.
type state struct {
	client bool // the end under test
	due    Type
	within time.Duration
}

func states() []state {
	const inRun = faultStall + 2*progressInterval
	return []state{
		{true, TypeGreeting, messageTimeout},
		{true, TypeGrant, messageTimeout},
		{true, TypeReady, messageTimeout},
		{true, TypeProgress, inRun},
		{true, TypeDone, inRun},
		{true, TypeReport, messageTimeout},
		{false, TypeRequest, messageTimeout},
		{false, TypeStart, 5 * messageTimeout},
		{false, TypeProgress, inRun},
		{false, TypeDone, inRun},
		{false, TypeReport, messageTimeout},
		{false, TypeBye, messageTimeout},
	}
}

// An ending is what an end returned, and how long after the fault.
type ending struct {
	err   error
	after time.Duration
	local *Report
	peer  *Report
}

// faulty runs a whole test, with tamper between the ends, until both have returned.
func faulty(t *testing.T, tamper func(w *world, from *end, b []byte) ([]byte, func())) (client, server ending) {
	t.Helper()
	w := newWorld()
	var failed time.Time
	w.tamper = func(from *end, b []byte) ([]byte, func()) {
		deliver, after := tamper(w, from, b)
		if after != nil {
			failed = time.Now()
		}
		return deliver, after
	}
	s := &Server{Clock: time.Now, Agent: "server/test"}
	served, over := make(chan ending, 1), make(chan struct{})
	go func() {
		defer close(over)
		for st := range w.accept {
			if st.protocol == protocol.Data {
				go func() { _ = s.ServeData(t.Context(), w, st) }()
				continue
			}
			go func() {
				r, err := s.Serve(t.Context(), w, st)
				e := ending{err: err, after: time.Since(failed)}
				if r != nil {
					e.local, e.peer = r.Local, r.Peer
				}
				served <- e
			}()
		}
	}()
	out, err := Client{Clock: time.Now, Agent: "client/test"}.Run(t.Context(), []transport.Session{w}, flood(func(p *Params) {
		p.Direction, p.Bytes, p.Duration, p.Interval = Both, 0, 2500*time.Millisecond, time.Second
		p.Streams, p.Block, p.Rate, p.Stall = 2, 1000, 400e3, faultStall
	}))
	client = ending{err, time.Since(failed), out.Local, out.Peer}
	server = <-served
	close(w.accept)
	<-over
	synctest.Wait()
	w.allClosed(t)
	if failed.IsZero() {
		t.Error("the exchange never came to the fault")
	}
	return client, server
}

func TestEveryFaultInEveryState(t *testing.T) {
	for _, s := range states() {
		for _, f := range faults() {
			role := map[bool]string{true: "client", false: "server"}[s.client]
			t.Run(role+"/"+s.due.String()+"/"+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, server := faulty(t, func(w *world, from *end, b []byte) ([]byte, func()) {
						if from.protocol != protocol.Control || from.client == s.client || Type(b[4]) != s.due {
							return nil, nil
						}
						return f.change(b), func() { f.after(w) }
					})
					tested := map[bool]ending{true: client, false: server}[s.client]
					s.check(t, f, tested)
					// The other end has a dead peer too; it may wait for anything.
					for _, e := range []ending{client, server} {
						if e.after > 5*messageTimeout+time.Second {
							t.Errorf("an end returned only after %v: %v", e.after, e.err)
						}
					}
				})
			})
		}
	}
}

// check compares what the end under test returned with what it should.
func (s state) check(t *testing.T, f fault, e ending) {
	t.Helper()
	if e.after > s.within+time.Second {
		t.Errorf("returned %v after the fault, at most %v are allowed: %v", e.after, s.within, e.err)
	}
	if s.due == TypeBye { // the run was over: both reports are here, unless a reset took the last one away
		if f.name == "reset" && errors.Is(e.err, syscall.ECONNRESET) {
			return
		}
		if e.err != nil || e.peer == nil {
			t.Errorf("without a bye: %v, the peer's report: %v", e.err, e.peer)
		}
		return
	}
	var a *Abort
	inRun := s.due == TypeProgress || s.due == TypeDone || s.due == TypeReport
	switch {
	case e.err == nil:
		t.Fatal("no error")
	case f.wire:
		if !errors.Is(e.err, ErrWire) {
			t.Errorf("not a malformed message: %v", e.err)
		}
	case strings.Contains(f.name, "silent") && inRun:
		if !errors.As(e.err, &a) || a.Code != CodeStall {
			t.Errorf("not a stall: %v", e.err)
		}
	case strings.Contains(f.name, "silent"):
		if !errors.Is(e.err, os.ErrDeadlineExceeded) {
			t.Errorf("not a deadline: %v", e.err)
		}
	case f.name == "reset" && s.due != TypeDone && s.due != TypeReport && s.due != TypeProgress:
		if !errors.Is(e.err, syscall.ECONNRESET) {
			t.Errorf("not a reset: %v", e.err)
		}
	}
	if !inRun && !f.wire && !strings.Contains(e.err.Error(), s.due.String()) {
		t.Errorf("the error does not name %s: %v", s.due, e.err)
	}
	if inRun && (e.local == nil || e.local.Sent == nil || e.local.Received == nil) {
		t.Errorf("what was measured is lost: %+v", e.local)
	}
	if strings.Contains(e.err.Error(), "\n") {
		t.Errorf("more than one line: %q", e.err)
	}
}

// TestFaultsBeforeTheDataStreamsAreThere: the client fails with the header of a data stream, so that the server
// waits for streams that never come.
func TestFaultsBeforeTheDataStreamsAreThere(t *testing.T) {
	for _, f := range faults()[:5] {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, server := faulty(t, func(w *world, from *end, b []byte) ([]byte, func()) {
					if from.protocol != protocol.Data {
						return nil, nil
					}
					return f.change(b), func() { f.after(w) }
				})
				if server.err == nil || !strings.Contains(server.err.Error(), "data stream") || strings.Contains(server.err.Error(), "\n") {
					t.Errorf("the server says %q", server.err)
				}
				if server.after > 4*messageTimeout+time.Second {
					t.Errorf("the server returned only after %v", server.after)
				}
			})
		})
	}
}
