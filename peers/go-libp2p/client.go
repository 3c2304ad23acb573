// The dialing side: floods, and two yardsticks, the library's own ping and what an idle stream costs.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
)

const (
	drainTimeout   = 10 * time.Second // for the server to say that it has read everything
	connectTimeout = 15 * time.Second
)

// dial connects a host of its own to the server: one host keeps one connection to a peer.
func (o options) dial(ctx context.Context) (host.Host, peer.ID, error) {
	info, err := peer.AddrInfoFromString(o.connect)
	if err != nil {
		return nil, "", fmt.Errorf("the address %q: %w", o.connect, err)
	}
	h, err := o.newHost("")
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := h.Connect(ctx, *info); err != nil {
		h.Close()
		return nil, "", fmt.Errorf("dial %s: %w", o.connect, err)
	}
	return h, info.ID, nil
}

// client floods and prints what it sent or received.
func (o options) client(ctx context.Context, out *lines) error {
	if o.protocol != perf010 && o.protocol != perf100 || o.download && o.protocol == perf010 {
		return fmt.Errorf("%w: protocol %s, download %t", errUnsupported, o.protocol, o.download)
	}
	began := time.Now()
	var streams []network.Stream
	for range o.connections {
		h, id, err := o.dial(ctx)
		if err != nil {
			return err
		}
		defer h.Close()
		for range o.streams {
			s, err := h.NewStream(ctx, id, protocol.ID(o.protocol))
			if err != nil {
				return fmt.Errorf("opening a stream: %w", err)
			}
			streams = append(streams, s)
		}
	}
	setup := time.Since(began)
	r, err := o.flood(ctx, streams)
	if err != nil {
		return err
	}
	r.Setup = setup.Seconds()
	out.write(r)
	return nil
}

// flood runs every stream and sums up.
func (o options) flood(ctx context.Context, streams []network.Stream) (result, error) {
	stop := context.AfterFunc(ctx, func() {
		for _, s := range streams {
			_ = s.Reset()
		}
	})
	defer stop()
	spans := make([]span, len(streams))
	errs := make([]error, len(streams))
	until := time.Time{}
	if o.bytes == 0 {
		until = time.Now().Add(o.duration())
	}
	var wg sync.WaitGroup
	for i, s := range streams {
		wg.Go(func() { errs[i] = o.move(s, o.share(i, len(streams)), until, &spans[i]) })
	}
	wg.Wait()
	r := result{Event: "result", Role: "client", Protocol: o.protocol}
	var first, last time.Time
	for _, p := range spans {
		if o.download {
			r.Received += p.bytes
		} else {
			r.Sent += p.bytes
		}
		if p.bytes > 0 && (first.IsZero() || p.first.Before(first)) {
			first = p.first
		}
		if p.last.After(last) {
			last = p.last
		}
	}
	r.Seconds = last.Sub(first).Seconds()
	return r, errors.Join(errs...)
}

// share is stream i's part of the bytes; with a time instead, there is no end to it.
func (o options) share(i, n int) uint64 {
	if o.bytes == 0 {
		return math.MaxUint64
	}
	part := o.bytes / uint64(n)
	if uint64(i) < o.bytes%uint64(n) {
		part++
	}
	return part
}

// move floods one stream, one way.
func (o options) move(s network.Stream, n uint64, until time.Time, p *span) error {
	back := uint64(0)
	if o.download {
		back = n
	}
	if o.protocol == perf100 {
		if _, err := s.Write(binary.BigEndian.AppendUint64(nil, back)); err != nil {
			return fmt.Errorf("writing the header: %w", err)
		}
	}
	if !o.download {
		if err := send(s, make([]byte, o.block), n, until, p); err != nil {
			return fmt.Errorf("writing the payload: %w", err)
		}
	}
	if err := s.CloseWrite(); err != nil {
		return fmt.Errorf("ending the upload: %w", err)
	}
	if o.download {
		return o.receive(s, n, until, p)
	}
	_ = s.SetReadDeadline(time.Now().Add(drainTimeout))
	if _, err := io.Copy(io.Discard, s); err != nil {
		return fmt.Errorf("waiting for the server to have read everything: %w", err)
	}
	return nil
}

// receive reads n bytes, or until the time is up; then the stream is reset.
func (o options) receive(s network.Stream, n uint64, until time.Time, p *span) error {
	if !until.IsZero() {
		_ = s.SetReadDeadline(until)
	}
	err := drain(s, p)
	switch {
	case !until.IsZero() && !time.Now().Before(until):
		_ = s.Reset()
		return nil
	case err != nil:
		return fmt.Errorf("reading the download: %w", err)
	case p.bytes != n:
		return fmt.Errorf("%d of %d bytes arrived", p.bytes, n)
	}
	return nil
}

// ping prints the distribution of the library's own round trips.
func (o options) ping(ctx context.Context, out *lines) error {
	h, id, err := o.dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []time.Duration
	for r := range ping.Ping(ctx, h, id) {
		if r.Error != nil {
			return fmt.Errorf("ping: %w", r.Error)
		}
		if all = append(all, r.RTT); len(all) >= o.count {
			break
		}
	}
	slices.Sort(all)
	at := func(q float64) int64 { return int64(all[int(q*float64(len(all)-1))]) }
	out.write(map[string]any{"event": "result", "role": "client", "protocol": ping.ID, "count": len(all),
		"min_ns": at(0), "p50_ns": at(0.5), "p90_ns": at(0.9), "p99_ns": at(0.99), "max_ns": at(1)})
	return nil
}

// idle opens streams on which nothing is said, and prints what each costs at this end.
func (o options) idle(ctx context.Context, out *lines) error {
	h, id, err := o.dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	heap, rss := memory()
	for i := range o.count {
		s, err := h.NewStream(ctx, id, perf100)
		if err != nil {
			return fmt.Errorf("opening stream %d: %w", i, err)
		}
		defer s.Reset()
		if _, err := s.Write(nil); err != nil {
			return err
		}
	}
	heapAfter, rssAfter := memory()
	out.write(map[string]any{"event": "result", "role": "client", "protocol": "idle", "streams": o.count,
		"heap_bytes_per_stream": float64(heapAfter-heap) / float64(o.count), "rss_bytes_per_stream": float64(rssAfter-rss) / float64(o.count)})
	return nil
}

// memory is the live heap, with the stacks, and the resident set, in bytes.
func memory() (heap, rss int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	heap = int64(m.HeapAlloc + m.StackInuse)
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return heap, 0
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		rss = pages * int64(os.Getpagesize())
	}
	return heap, rss
}
