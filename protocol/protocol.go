// Package protocol holds what is said on one stream: the perf protocols of libp2p, echo and
// discard, request and response, and the data streams of our own control exchange, which has a
// package of its own below this one. Each is a pair of functions on an io.ReadWriter; none knows
// how a stream came to be, how a result looks, or what time it is.
package protocol

import (
	"errors"
	"fmt"
)

// The names that multistream-select knows them by.
const (
	Perf010 = "/perf/0.1.0"            // libp2p-perf: the client writes until its end of data
	Perf100 = "/perf/1.0.0"            // libp2p/specs perf/perf.md
	Control = "/muxperf/1.0.0"         // our own exchange: package control
	Data    = "/muxperf/data/1.0.0"    // a data stream of it
	RR      = "/muxperf/rr/1.0.0"      // request and response
	Echo    = "/muxperf/echo/1.0.0"    // whatever arrives is sent back
	Discard = "/muxperf/discard/1.0.0" // whatever arrives is dropped
	Chargen = "/muxperf/chargen/1.0.0" // bytes for as long as the peer reads
)

// BlockSize is the default size of one write, in bytes: that of libp2p-perf and iperf3, 128 KiB.
const BlockSize = 128 << 10

// ErrShort: the stream ended before all the bytes that were announced had arrived.
var ErrShort = errors.New("the stream ended early")

// ErrTooMuch: the peer sent more than it was asked for.
var ErrTooMuch = errors.New("the peer sent too much")

// A Counter counts payload bytes as they cross the stream; measure.Meter is one.
type Counter interface{ Add(bytes int) }

// short says how much is missing.
func short(got, want uint64) error {
	return fmt.Errorf("%w: %d of %d bytes arrived", ErrShort, got, want)
}
