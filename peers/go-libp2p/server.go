// The serving side of both perf protocols.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
)

const (
	perf010 = "/perf/0.1.0"
	perf100 = "/perf/1.0.0"
	buffer  = 128_000 // bytes, as the clients of libp2p-perf have it
)

// serve answers until ctx is done.
func serve(ctx context.Context, o options, out *lines) error {
	h, err := o.newHost(o.listen)
	if err != nil {
		return err
	}
	defer h.Close()
	h.SetStreamHandler(perf010, func(s network.Stream) { out.write(handle(s, perf010)) })
	h.SetStreamHandler(perf100, func(s network.Stream) { out.write(handle(s, perf100)) })
	out.write(map[string]string{"event": "ready", "address": addressOf(h)})
	<-ctx.Done()
	return nil
}

// addressOf is the host's first address with its peer id.
func addressOf(h host.Host) string {
	return h.Addrs()[0].String() + "/p2p/" + h.ID().String()
}

// handle serves one stream and returns what it saw.
func handle(s network.Stream, protocol string) result {
	r := result{Event: "result", Role: "server", Protocol: protocol}
	err := r.serve(s)
	if err != nil {
		r.Incomplete = true
		_ = s.Reset()
	} else {
		_ = s.Close()
	}
	return r
}

// serve drains the upload, then sends what was asked for.
func (r *result) serve(s network.Stream) error {
	var want uint64
	if r.Protocol == perf100 {
		var header [8]byte
		if _, err := io.ReadFull(s, header[:]); err != nil {
			return err
		}
		want = binary.BigEndian.Uint64(header[:])
	}
	var up, down span
	err := drain(s, &up)
	r.Received, r.Seconds = up.bytes, up.seconds()
	if err != nil {
		return err
	}
	err = send(s, make([]byte, buffer), want, time.Time{}, &down)
	r.Sent, r.Seconds = down.bytes, r.Seconds+down.seconds()
	return err
}

// A span is payload with the instants of its first and its last byte.
type span struct {
	bytes       uint64
	first, last time.Time
}

func (p *span) add(n int) {
	if n <= 0 {
		return
	}
	p.last = time.Now()
	if p.bytes == 0 {
		p.first = p.last
	}
	p.bytes += uint64(n)
}

func (p *span) seconds() float64 { return p.last.Sub(p.first).Seconds() }

// drain reads to the end of data.
func drain(r io.Reader, p *span) error {
	buf := make([]byte, buffer)
	for {
		n, err := r.Read(buf)
		p.add(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// send writes n bytes, or until the time is up if that is set.
func send(w io.Writer, block []byte, n uint64, until time.Time, p *span) error {
	if n > 0 {
		p.first = time.Now()
	}
	for p.bytes < n && (until.IsZero() || time.Now().Before(until)) {
		m, err := w.Write(block[:min(uint64(len(block)), n-p.bytes)])
		p.bytes += uint64(m)
		p.last = time.Now()
		if err != nil {
			return err
		}
	}
	return nil
}
