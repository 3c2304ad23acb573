// Who gets in: how many connections an address may have, and which connections may be in their handshakes.
//
// A handshake that its peer does not go on with takes a place until its timeout, and whoever holds every place
// keeps the others out. So a newcomer is never turned away for want of a place: the oldest handshake is ended for
// it, that of the same address where this one has its share. A handshake takes milliseconds, and a place is lost
// only when hundreds of newcomers have come meanwhile.

package main

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
)

const (
	maxHandshakes   = 512 // at once
	handshakesShare = 256 // of one address
)

// errCrowdedOut is why a handshake was ended.
var errCrowdedOut = errors.New("its handshake gave way to newer ones")

// handshakes are those under way, oldest first.
type handshakes struct {
	most, share int

	mu      sync.Mutex
	all     *list.List // of *handshake
	of      map[string]int
	crowded uint64 // how many had to give way
}

type handshake struct {
	host string
	end  context.CancelCauseFunc
	gone bool
}

func newHandshakes(most, share int) *handshakes {
	return &handshakes{most: most, share: share, all: list.New(), of: map[string]int{}}
}

// begin enters a handshake. The context ends when it has to give way; done leaves.
func (h *handshakes) begin(ctx context.Context, host string) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.of[host] >= h.share:
		h.evict(func(x *handshake) bool { return x.host == host })
	case h.all.Len() >= h.most:
		h.evict(func(*handshake) bool { return true })
	}
	e := h.all.PushBack(&handshake{host: host, end: end})
	h.of[host]++
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.remove(e)
		end(nil)
	}
}

// evict ends the oldest that fits.
func (h *handshakes) evict(fits func(*handshake) bool) {
	for e := h.all.Front(); e != nil; e = e.Next() {
		if x := e.Value.(*handshake); fits(x) {
			h.crowded++
			h.remove(e)
			x.end(errCrowdedOut)
			return
		}
	}
}

// remove takes one out, once.
func (h *handshakes) remove(e *list.Element) {
	x := e.Value.(*handshake)
	if x.gone {
		return
	}
	x.gone = true
	h.all.Remove(e)
	if h.of[x.host]--; h.of[x.host] <= 0 {
		delete(h.of, x.host)
	}
}

// An addressCounter counts the connections of each address.
type addressCounter struct {
	mu sync.Mutex
	n  map[string]int
}

// enter counts one more; false if limit (0: none) is reached.
func (c *addressCounter) enter(host string, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit > 0 && c.n[host] >= limit {
		return false
	}
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[host]++
	return true
}

func (c *addressCounter) leave(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[host]--; c.n[host] <= 0 {
		delete(c.n, host)
	}
}

// hostOf is whom a connection is counted for: its address without the port, of an IPv6 address the /64 that one
// host or site can have whole; "" for a Unix socket.
func hostOf(conn net.Conn) string {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	site, _ := addr.Prefix(64) // fails for IPv4 only
	return site.String()
}
