// A proxy between client and server that breaks one direction of one connection at a given byte.

//go:build linux

package faults

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A strike is done to the bytes from the offset on: what it returns is passed on instead. With over, nothing
// follows: end says what both ends then see.
type strike struct {
	change func([]byte) []byte // of a piece of some bytes; nil changes nothing
	over   bool
	end    func(src, dst net.Conn)
}

func closed(src, dst net.Conn) { src.Close(); dst.Close() }
func reset(src, dst net.Conn) {
	for _, c := range []net.Conn{src, dst} {
		if c, ok := c.(*net.TCPConn); ok { // a Unix socket has no reset but that of an unread rest
			_ = c.SetLinger(0)
		}
		c.Close()
	}
}

// closeWrite tells the receiver of an end of data.
func closeWrite(c net.Conn) { _ = c.(interface{ CloseWrite() error }).CloseWrite() }

// halfClosed ends one direction; the other goes on, and the sender is read from.
func halfClosed(src, dst net.Conn) {
	closeWrite(dst)
	_, _ = io.Copy(io.Discard, src)
}

// mute passes nothing more and says nothing.
func mute(src, dst net.Conn) { _, _ = io.Copy(io.Discard, src) }

// A proxy breaks the connection of a number, counted from 0, or is slow with each.
type proxy struct {
	listener   net.Listener
	target     string
	connection int
	down       bool // the direction to the client
	offset     int
	span       int // how many bytes the strike has to work on; 0 breaks nothing
	strike     strike
	rate       int // bytes per second and direction; 0 is as fast as it goes
	struck     atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	at := "127.0.0.1:0"
	if strings.HasPrefix(target, "unix:") {
		at = unixName(t)
	}
	l, err := net.Listen(endpoint(at))
	if err != nil {
		t.Fatal(err)
	}
	return &proxy{listener: l, target: target}
}

// addr is where it is, as a client takes it.
func (p *proxy) addr() string {
	at := p.listener.Addr()
	if at.Network() == "unix" {
		return "unix:" + at.String()
	}
	return at.String()
}

// endpoint is what package net calls an address of ours.
func endpoint(addr string) (network, address string) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix", path
	}
	return "tcp4", addr
}

// serves runs a client by way of the proxy, and ends.
func (p *proxy) serves(t *testing.T, args []string) outcome {
	t.Helper()
	p.serve()
	defer p.close()
	return run(t, nil, append(args, p.addr())...)
}

// runs is serves where the strike has to come.
func (p *proxy) runs(t *testing.T, args []string) outcome {
	t.Helper()
	o := p.serves(t, args)
	if !p.struck.Load() {
		t.Error("it never came to that")
	}
	return o
}

// serve carries connections until close.
func (p *proxy) serve() {
	p.wg.Go(func() {
		for n := 0; ; n++ {
			near, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.carry(near, p.span > 0 && n == p.connection) })
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
	network, address := endpoint(p.target)
	far, err := net.DialTimeout(network, address, time.Minute)
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
		piece := make([]byte, p.span)
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
	_, err := io.Copy(dst, p.paced(src))
	p.ended(dst, src, err)
}

// paced gives what a source gives, at the proxy's rate.
func (p *proxy) paced(src io.Reader) io.Reader {
	if p.rate == 0 {
		return src
	}
	return slowReader{src, p.rate}
}

// A slowReader gives a hundredth of a second's bytes at a time, and then waits that hundredth.
type slowReader struct {
	io.Reader
	rate int // bytes per second
}

func (r slowReader) Read(b []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return r.Reader.Read(b[:min(len(b), r.rate/100)])
}

// ended passes an end of data on as such, and anything else as a reset.
func (p *proxy) ended(dst, src net.Conn, err error) {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		closeWrite(dst)
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
