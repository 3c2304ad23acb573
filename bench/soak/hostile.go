//go:build linux

// Hostile connections: what a port scan, a health check or a stranger sends. The server has to close every
// one of them by itself.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"
)

// The names of what is hostile.
const (
	hostileScan    = "scan"    // connect, close
	hostileGarbage = "garbage" // random bytes
	hostileHalf    = "half"    // the beginning of a handshake
	hostileSilent  = "silent"  // nothing
	hostileHTTP    = "http"    // GET without an upgrade
	hostileUpgrade = "upgrade" // a WebSocket, and then random frames or nothing
)

// hangUp is how long the server may take to close: 10 s for each of three layers, 20 s for a session without
// a stream, and as much again for a busy machine.
const hangUp = 100 * time.Second

// beHostile makes one such connection and waits until the server has closed it.
func beHostile(ctx context.Context, to address, f fault) error {
	r := rand.New(rand.NewPCG(f.seed, 0))
	if f.name == hostileScan {
		return scan(ctx, to, 1+r.IntN(30))
	}
	c, err := to.dial(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the server: %w", err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(hangUp)); err != nil {
		return err
	}
	_, _ = c.Write(opening(f.name, r)) // the server may have seen enough before it has read all
	answer, err := io.ReadAll(io.LimitReader(c, 1<<20))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the server did not close a hostile connection (%s) within %s", f.name, hangUp)
	case f.name == hostileHTTP && !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")):
		return fmt.Errorf("the server answered %q to a GET: %w", answer, errors.Join(err, errors.New("want a status 4xx")))
	}
	return nil
}

// scan connects and closes.
func scan(ctx context.Context, to address, times int) error {
	for range times {
		c, err := to.dial(ctx)
		if err != nil {
			return fmt.Errorf("connecting to the server: %w", err)
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		c.Close()
	}
	return nil
}

// opening is what the connection sends.
func opening(name string, r *rand.Rand) []byte {
	random := make([]byte, 1+r.IntN(4096))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	select2 := "\x13/multistream/1.0.0\n"
	get := "GET / HTTP/1.1\r\nHost: soak\r\n"
	switch name {
	case hostileGarbage:
		return random
	case hostileHalf:
		return []byte(oneOf(r, select2[:1+r.IntN(len(select2)-1)], select2, select2+"\x07/noise\n",
			select2+"\x07/noise\n\x00\x20"+string(random[:min(len(random), 32)]), select2+"\x11/plaintext/2.0.0\n",
			select2+"\x11/plaintext/2.0.0\n"+string(random), get))
	case hostileHTTP:
		return []byte(get + "\r\n")
	case hostileUpgrade:
		upgrade := get + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c29hayBzb2FrIHNvYWshIQ==\r\n\r\n"
		return []byte(upgrade + string(random[:r.IntN(len(random))]))
	}
	return nil
}
