// A proxy between client and server that breaks one direction of one connection at a given byte.

//go:build linux

package faults

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A strike is done to the bytes from the offset on: what it returns is passed on instead. With over, nothing
// follows: end says what both ends then see.
type strike struct {
	change func([]byte) []byte // of a piece of at least span bytes; nil changes nothing
	over   bool
	end    func(src, dst net.Conn)
}

// span is how many bytes a strike has to work on.
const span = 256

func closed(src, dst net.Conn) { src.Close(); dst.Close() }
func reset(src, dst net.Conn) {
	for _, c := range []net.Conn{src, dst} {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// halfClosed tells the receiver of an end of data; the other direction goes on, and the sender is read from.
func halfClosed(src, dst net.Conn) {
	_ = dst.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, src)
}

// mute passes nothing more and says nothing.
func mute(src, dst net.Conn) { _, _ = io.Copy(io.Discard, src) }

// A proxy breaks the connection of a number, counted from 0.
type proxy struct {
	listener   net.Listener
	target     string
	connection int
	down       bool // the direction to the client
	offset     int
	strike     strike
	struck     atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &proxy{listener: l, target: target}
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// serve carries connections until close.
func (p *proxy) serve() {
	p.wg.Go(func() {
		for n := 0; ; n++ {
			near, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.carry(near, n == p.connection) })
		}
	})
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
}

func (p *proxy) carry(near net.Conn, broken bool) {
	p.keep(near)
	defer near.Close()
	far, err := net.DialTimeout("tcp4", p.target, time.Minute)
	if err != nil {
		return
	}
	p.keep(far)
	defer far.Close()
	var wg sync.WaitGroup
	wg.Go(func() { p.oneWay(far, near, broken && !p.down) })
	wg.Go(func() { p.oneWay(near, far, broken && p.down) })
	wg.Wait()
}

// oneWay passes on, up to the offset where it is to break; then it gathers a span, and strikes.
func (p *proxy) oneWay(dst, src net.Conn, broken bool) {
	if broken {
		if _, err := io.CopyN(dst, src, int64(p.offset)); err != nil {
			p.ended(dst, src, err)
			return
		}
		piece := make([]byte, span)
		n, err := io.ReadFull(src, piece)
		if n == 0 {
			p.ended(dst, src, err)
			return
		}
		p.struck.Store(true)
		piece = piece[:n]
		if p.strike.change != nil {
			piece = p.strike.change(piece)
		}
		if len(piece) > 0 && !(p.strike.over && p.strike.change == nil) {
			_, _ = dst.Write(piece)
		}
		if p.strike.over {
			p.strike.end(src, dst)
			return
		}
	}
	_, err := io.Copy(dst, src)
	p.ended(dst, src, err)
}

// ended passes an end of data on as such, and anything else as a reset.
func (p *proxy) ended(dst, src net.Conn, err error) {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		_ = dst.(*net.TCPConn).CloseWrite()
		return
	}
	reset(src, dst)
}

// The changes.
func flipped(b []byte) []byte    { b[len(b)/2] ^= 0x10; return b }
func duplicated(b []byte) []byte { return append(bytes.Clone(b), b...) }
func truncated(b []byte) []byte  { return b[:len(b)/2] }
func garbage(b []byte) []byte    { return append(bytes.Repeat([]byte{0xa5, 0x5a, 0xff}, 50), b...) }
func reordered(b []byte) []byte {
	half := len(b) / 2
	return append(bytes.Clone(b[half:]), b[:half]...)
}
