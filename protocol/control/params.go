// What parameters make sense, and what a server's limits make of them.

package control

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"muxperf/protocol"
)

// maxStreams bounds the data streams of one run whatever the limits say: the numbers that done and
// report carry for each must fit a message.
const maxStreams = 20_000

// sockets is the socket options in words.
func (p Params) sockets() string {
	var out []string
	if p.SocketBuf > 0 {
		out = append(out, fmt.Sprintf("buffers of %d bytes", p.SocketBuf))
	}
	if p.Congestion != "" {
		out = append(out, "congestion control "+p.Congestion)
	}
	if p.NoDelayOff {
		out = append(out, "Nagle's algorithm")
	}
	return strings.Join(out, ", ")
}

// Validate reports parameters that make no sense, in words for a user.
func (p Params) Validate() error {
	switch {
	case p.Test != "flood":
		return fmt.Errorf("test %q is not served on the control stream", p.Test)
	case p.Direction != Upload && p.Direction != Download && p.Direction != Both:
		return fmt.Errorf("direction %q: want upload, download or both", p.Direction)
	case p.Duration < 0 || p.Omit < 0 || p.Interval < 0 || p.Stall <= 0:
		return fmt.Errorf("a negative time")
	case p.Duration == 0 && p.Bytes == 0:
		return fmt.Errorf("neither a duration nor a number of bytes")
	case p.Block < 1 || p.Block > protocol.MaxBlock:
		return fmt.Errorf("a block of %d bytes: want 1 to %d", p.Block, protocol.MaxBlock)
	case p.Connections < 1 || p.Streams < 1 || p.Connections > maxStreams || p.Streams > maxStreams || p.Connections*p.Streams > maxStreams:
		return fmt.Errorf("%d connections of %d streams: want 1 to %d streams in all", p.Connections, p.Streams, maxStreams)
	case !(p.Rate >= 0) || !(p.StreamRate >= 0):
		return fmt.Errorf("a negative rate")
	case p.Interval > 0 && p.Interval < 10*time.Millisecond:
		return fmt.Errorf("an interval of %s: want at least 10ms", p.Interval)
	case p.Interval > 0 && (p.Omit+p.Duration)/p.Interval > 20_000:
		return fmt.Errorf("%d intervals: want at most 20000; choose a longer --interval", (p.Omit+p.Duration)/p.Interval)
	}
	return nil
}

// Apply lowers params to the limits and lists what was lowered.
func (l Limits) Apply(p Params) (Params, []Limit) {
	var cut []Limit
	note := func(name, asked, granted string) { cut = append(cut, Limit{name, asked, granted}) }
	if l.Duration > 0 && (p.Omit+p.Duration > l.Duration || p.Duration == 0) {
		granted := max(l.Duration-p.Omit, time.Millisecond)
		asked := "unlimited"
		if p.Duration > 0 {
			asked = p.Duration.String()
		}
		note("duration", asked, granted.String())
		p.Duration = granted
	}
	if l.Bytes > 0 && (p.Bytes > l.Bytes || p.Bytes == 0) {
		asked := "unlimited"
		if p.Bytes > 0 {
			asked = strconv.FormatUint(p.Bytes, 10)
		}
		note("bytes", asked, strconv.FormatUint(l.Bytes, 10))
		p.Bytes = l.Bytes
	}
	if l.Rate > 0 && (p.Rate > l.Rate || p.Rate == 0) {
		asked := "unlimited"
		if p.Rate > 0 {
			asked = fmt.Sprintf("%.0f bit/s", p.Rate)
		}
		note("rate", asked, fmt.Sprintf("%.0f bit/s", l.Rate))
		p.Rate = l.Rate
	}
	return p, cut
}
