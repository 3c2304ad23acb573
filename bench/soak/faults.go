//go:build linux

// The faults: what happens to a client's process, and a proxy in user space that breaks its connections.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muxperf/bench/link"
)

// The names of the faults.
const (
	faultNone   = ""
	faultCut    = "cut"    // both ends see an end of data
	faultReset  = "reset"  // both ends see a reset
	faultStall  = "stall"  // one direction stands still for a while
	faultFreeze = "freeze" // one direction stands still until the client has given up
	faultFlip   = "flip"   // one bit changes
	faultSlow   = "slow"   // a link with a rate and a delay
	faultKill   = "kill"   // SIGKILL
	faultStop   = "stop"   // SIGSTOP, and SIGCONT after a while
	faultInt    = "int"    // SIGINT
)

// A fault is what goes wrong in a step.
type fault struct {
	name       string
	after      time.Duration // of the client's life, for signals
	pause      time.Duration // of stall and stop
	connection int           // which one the proxy breaks
	down       bool          // in the direction to the client
	offset     int64         // at which byte
	bit        int
	path       link.Path
	seed       uint64 // of what is hostile
}

func (f fault) String() string {
	switch f.name {
	case faultNone:
		return "no fault"
	case faultKill, faultInt:
		return fmt.Sprintf("%s after %s", f.name, f.after)
	case faultStop:
		return fmt.Sprintf("%s after %s for %s", f.name, f.after, f.pause)
	case faultSlow:
		return fmt.Sprintf("slow: %.0f Mbit/s, %s one way", f.path.Rate/1e6, f.path.Delay)
	case faultCut, faultReset, faultStall, faultFreeze, faultFlip:
		way := "up"
		if f.down {
			way = "down"
		}
		return fmt.Sprintf("%s at byte %d %s of connection %d, %s", f.name, f.offset, way, f.connection, f.pause)
	}
	return f.name
}

// harmless reports whether a client has to succeed in spite of the fault: it only takes longer, and by less
// than any time limit.
func (f fault) harmless() bool {
	switch f.name {
	case faultNone, faultStall, faultSlow, faultStop:
		return true
	}
	return false
}

// proxied reports whether the fault is one of the connection.
func (f fault) proxied() bool {
	switch f.name {
	case faultCut, faultReset, faultStall, faultFreeze, faultFlip, faultSlow:
		return true
	}
	return false
}

// breakIt chooses a fault for a step, more often none.
func (s *step) breakIt(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	f := fault{after: time.Duration(r.Int64N(int64(s.length))), pause: time.Duration(r.Int64N(int64(2 * time.Second))).Round(time.Millisecond),
		down: r.IntN(2) == 0, bit: r.IntN(8)}
	f.connection, f.offset = s.where(r, f.down)
	f.path = link.Path{Rate: 1e6 * float64(50+r.IntN(450)), Delay: time.Duration(r.IntN(10)) * time.Millisecond}
	if n := time.Duration(s.want.count); n > 0 {
		f.path.Delay = min(f.path.Delay, 10*time.Second/n) // 20 s of round trips, one after the other
	}
	f.name = oneOf(r, faultCut, faultCut, faultReset, faultReset, faultFlip, faultFlip, faultStall, faultStall, faultFreeze,
		faultSlow, faultKill, faultKill, faultStop, faultInt)
	if f.name == faultSlow && (s.place == mainUnix || s.place == echoUnix) {
		f.name = faultStop // the simulated link is TCP's
	}
	s.fault = f
}

// where chooses a connection and a byte of it that the step is likely to have.
func (s *step) where(r *rand.Rand, down bool) (connection int, offset int64) {
	offset = logUniform(r, 4<<10)
	if s.test == "crr" || s.test == "hold" && !slices.Contains(s.args, "--hold-streams") {
		return r.IntN(20), offset // many small ones
	}
	if payload := s.want.up && !down || s.want.down && down; payload && r.IntN(4) > 0 {
		offset = logUniform(r, 32<<20)
	}
	if strings.HasSuffix(s.stack, "+none") || slices.Contains(s.args, "--connections") {
		connection = oneOf(r, 0, 1, 1, 2) // without a muxer the first one has the control stream
	}
	return connection, offset
}

// A proxy carries connections to the server and breaks one of them.
type proxy struct {
	listener net.Listener
	target   address
	fault    fault
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	struck   atomic.Bool  // the fault has happened
	later    atomic.Int64 // bytes that went the same way after it
}

// startProxy listens at a free address of the same network; close ends it.
func startProxy(ctx context.Context, listen, target address, f fault) (*proxy, error) {
	l, err := net.Listen(listen.network, listen.text)
	if err != nil {
		return nil, fmt.Errorf("opening a proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &proxy{listener: l, target: target, fault: f, cancel: cancel}
	context.AfterFunc(ctx, func() { l.Close() })
	p.wg.Go(func() {
		for n := 0; ; n++ {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.carry(ctx, near, n == f.connection) })
		}
	})
	return p, nil
}

func (p *proxy) close() {
	p.cancel()
	p.wg.Wait()
}

// carry moves bytes both ways until both are done.
func (p *proxy) carry(ctx context.Context, near net.Conn, broken bool) {
	defer near.Close()
	far, err := p.target.dial(ctx)
	if err != nil {
		return
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { p.oneWay(ctx, far, near, broken && !p.fault.down) })
	wg.Go(func() { p.oneWay(ctx, near, far, broken && p.fault.down) })
	wg.Wait()
}

// oneWay moves bytes from src to dst; what is not an end of data becomes a reset.
func (p *proxy) oneWay(ctx context.Context, dst, src net.Conn, broken bool) {
	buf := make([]byte, 64<<10)
	total := int64(0)
	for {
		n, err := src.Read(buf)
		part := buf[:n]
		if at := p.fault.offset - total; broken && at >= 0 && at < int64(n) {
			p.struck.Store(true)
			if part = p.strike(ctx, dst, src, part, at); part == nil {
				return
			}
		} else if at < 0 && broken {
			p.later.Add(int64(n))
		}
		total += int64(n)
		if _, werr := dst.Write(part); werr != nil {
			hardClose(src)
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			if hc, ok := dst.(interface{ CloseWrite() error }); ok {
				_ = hc.CloseWrite()
			}
			return
		case err != nil:
			hardClose(dst)
			return
		}
	}
}

// strike does the damage at part[at] and returns what is still to be written; nil if the connection is gone.
func (p *proxy) strike(ctx context.Context, dst, src net.Conn, part []byte, at int64) []byte {
	if p.fault.name == faultFlip {
		part[at] ^= 1 << p.fault.bit
		return part
	}
	if _, err := dst.Write(part[:at]); err != nil {
		hardClose(src)
		return nil
	}
	switch p.fault.name {
	case faultCut:
		src.Close()
		dst.Close()
	case faultReset:
		hardClose(src)
		hardClose(dst)
	case faultFreeze:
		<-ctx.Done()
	case faultStall:
		select {
		case <-time.After(p.fault.pause):
			return part[at:]
		case <-ctx.Done():
		}
	}
	return nil
}

// hardClose closes with a reset where the network has one.
func hardClose(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}
