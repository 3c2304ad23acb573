// Listening and counting: what both engines share.

package testee

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"muxperf/transport/tcp"
)

// The engines.
const (
	EngineNet   = "net"
	EngineEpoll = "epoll"
)

// The policies for a peer that sends and does not read.
const (
	StallBlock = "block" // stop reading from it
	StallDrop  = "drop"  // go on reading, drop the echo beyond a cap, and count it
)

// Config is how testees serve; the zero value is the default engine, which blocks.
type Config struct {
	Engine   string // EngineNet, EngineEpoll, or "" for the best there is
	OnStall  string // StallBlock or StallDrop; "" blocks
	StallCap int    // bytes of echo that may wait for a peer, with StallDrop; 0 means 1 MiB
	Log      *slog.Logger
}

// Stats count since the start.
type Stats struct {
	Accepted int64 // connections
	Open     int64
	In, Out  int64 // bytes
	Dropped  int64 // bytes of echo
	Stalls   int64 // times that a peer did not read
}

type counters struct {
	accepted, open, in, out, dropped, stalls atomic.Int64
}

// A Testee listens and serves until it is closed.
type Testee struct {
	spec     Spec
	cfg      Config
	listener *tcp.Listener
	c        counters
	engine   engine
}

// An engine serves the connections of one listener.
type engine interface {
	// serve returns when ctx is done and everything is closed.
	serve(ctx context.Context) error
}

// Listen opens a testee; Serve serves it.
func Listen(ctx context.Context, s Spec, cfg Config) (*Testee, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.StallCap <= 0 {
		cfg.StallCap = 1 << 20
	}
	l, err := tcp.Listen(ctx, s.Network, s.Address, tcp.Options{Backlog: s.Backlog, ReusePort: s.Shared})
	if err != nil {
		return nil, fmt.Errorf("testee %s: %w", s, err)
	}
	t := &Testee{spec: s, cfg: cfg, listener: l}
	if t.engine, err = newEngine(t); err != nil {
		l.Close()
		return nil, fmt.Errorf("testee %s: %w", s, err)
	}
	return t, nil
}

// Addr is where it listens.
func (t *Testee) Addr() net.Addr { return t.listener.Addr() }

// Serve serves until ctx is done.
func (t *Testee) Serve(ctx context.Context) error {
	if err := t.engine.serve(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("testee %s: %w", t.spec, err)
	}
	return nil
}

// Stats are the counters now.
func (t *Testee) Stats() Stats {
	return Stats{Accepted: t.c.accepted.Load(), Open: t.c.open.Load(), In: t.c.in.Load(), Out: t.c.out.Load(),
		Dropped: t.c.dropped.Load(), Stalls: t.c.stalls.Load()}
}

// stalled notes a peer that does not read, once for each connection; the log's own limit keeps a crowd of them
// quiet.
func (t *Testee) stalled(peer string) {
	t.c.stalls.Add(1)
	text := "a peer sends and does not read; it is not read from until it does (--on-stall=drop drops the echo instead)"
	if t.cfg.OnStall == StallDrop {
		text = "a peer sends and does not read; its echo is dropped beyond the cap"
	}
	t.cfg.Log.Warn(text, "testee", t.spec.String(), "peer", peer)
}

// debug logs one connection's life.
func (t *Testee) debug(what, peer string) {
	if t.spec.Debug {
		t.cfg.Log.Info(what, "testee", t.spec.String(), "peer", peer)
	}
}

// pauseAccept is how long accepting rests when the descriptor table is full: what is open now has to end
// first.
const pauseAccept = 50 * time.Millisecond

// isClosed reports an error that comes of closing a socket ourselves.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// letters is what chargen sends: printable lines, as RFC 864 suggests.
func letters() []byte {
	b := make([]byte, 0, 74*885) // about 64 KiB, whole lines
	for line := 0; len(b)+74 <= cap(b); line++ {
		for i := range 72 {
			b = append(b, byte(' '+(line+i)%95))
		}
		b = append(b, '\r', '\n')
	}
	return b
}
