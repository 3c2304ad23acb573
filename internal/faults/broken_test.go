// What a network does to a connection: a proxy between client and server does it.

//go:build linux

package faults

import (
	"slices"
	"testing"
)

// The exit codes that a broken connection may come to.
const (
	whole       = 0
	failed      = 1
	gone        = 3 // no connection, or no handshake
	stalled     = 5 // or timed out
	wrong       = 6 // the payload is not what was sent
	unsupported = 127
)

// A breakage is a strike with the exit codes that it may have. Beneath Noise a change of bytes is a failed record.
// Over plaintext it is whatever those bytes meant; where they were payload, only --verify can tell, and without a muxer
// a stream that is cut ends as any stream ends, only too early. In the handshake a changed name is one that the peer
// does not know.
type breakage struct {
	strike
	handshake, noise, plaintext []int
}

func breakages() map[string]breakage {
	one := func(code int) []int { return []int{code} }
	changed, meaningless := []int{gone, unsupported}, []int{failed, stalled, wrong}
	return map[string]breakage{
		"cut":        {strike{over: true, end: closed}, one(gone), one(failed), one(failed)},
		"reset":      {strike{over: true, end: reset}, one(gone), one(failed), one(failed)},
		"half-close": {strike{over: true, end: halfClosed}, one(gone), one(failed), one(failed)},
		"silence":    {strike{over: true, end: mute}, one(stalled), one(stalled), one(stalled)},
		"truncated":  {strike{change: truncated, over: true, end: closed}, one(gone), one(failed), one(failed)},
		"shortened":  {strike{change: truncated}, []int{gone, stalled}, one(failed), meaningless},
		"flipped":    {strike{change: flipped}, changed, one(failed), one(wrong)},
		"duplicated": {strike{change: duplicated}, changed, one(failed), meaningless},
		"reordered":  {strike{change: reordered}, changed, one(failed), meaningless},
		"garbage":    {strike{change: garbage}, changed, one(failed), meaningless},
	}
}

// TestBrokenInPayload: every way in which a connection can break, in mid-payload, both ways. Each ends the client
// with an error and in time. A connection without a muxer carries one stream; there the second one has the payload.
func TestBrokenInPayload(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for name, b := range breakages() {
			for way, args := range ways(stack.client("-n", "3M", "--verify")) {
				t.Run(name+" "+way, func(t *testing.T) {
					t.Parallel()
					p := newProxy(t, s.addr)
					p.strike, p.down, p.offset, p.span = b.strike, way == "down", 700_001, 256
					if stack.mux == "none" {
						p.connection = 1
					}
					o := p.runs(t, args)
					o.failed(t)
					codes := b.plaintext
					switch {
					case stack.noise:
						codes = b.noise
					case stack.mux == "none" && name != "silence":
						codes = append([]int{wrong}, codes...)
					}
					if !slices.Contains(codes, o.code) {
						t.Errorf("code %d: %s; want one of %v", o.code, o.result.Error, codes)
					}
				})
			}
		}
	})
}

// TestBrokenInHandshake: the same among the first bytes of a connection, where the layers find each other. The head
// of a WebSocket has words that nobody minds, and one that is refused is tried once more with another version of
// Wisp: there a run may be whole, and has to be so then.
func TestBrokenInHandshake(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for name, b := range breakages() {
			for way, args := range ways(stack.client("-n", "3M", "--verify")) {
				t.Run(name+" "+way, func(t *testing.T) {
					t.Parallel()
					for _, offset := range []int{0, 22} { // in the first message of multistream-select, and in the second
						p := newProxy(t, s.addr)
						p.strike, p.down, p.offset, p.span = b.strike, way == "down", offset, 6
						o := p.runs(t, args)
						if o.code == whole && !stack.noise && stack.mux == "wisp" {
							o.carried(t, 3<<20)
							continue
						}
						o.failed(t)
						if !slices.Contains(b.handshake, o.code) {
							t.Errorf("at byte %d: code %d: %s; want one of %v", offset, o.code, o.result.Error, b.handshake)
						}
					}
				})
			}
		}
	})
}

// TestCutAnywhere: the connection is cut at every 1,000th byte of a session, either way; the client ends with an
// error or, where everything had been said, whole.
func TestCutAnywhere(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for way, args := range ways(stack.client("-n", "20000")) {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				for offset := 0; ; offset += 1000 {
					p := newProxy(t, s.addr)
					p.strike, p.down, p.offset, p.span = strike{over: true, end: closed}, way == "down", offset, 256
					o := p.serves(t, args)
					if o.code == whole {
						o.carried(t, 20_000)
					} else {
						o.failed(t)
					}
					if !p.struck.Load() {
						if o.code != whole {
							t.Errorf("nothing was cut, and it ended with %d: %s", o.code, o.stderr)
						}
						break
					}
				}
			})
		}
	})
}

// TestSlowNetwork: a link of 2 MB/s, or one whose bytes come late, changes nothing but the time: a count is exact.
func TestSlowNetwork(t *testing.T) {
	onEach(t, func(t *testing.T, s *server, stack stack) {
		for way, args := range ways(stack.client("-n", "3M", "--verify")) {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				p := newProxy(t, s.addr)
				p.rate = 2_000_000
				o := p.serves(t, args)
				o.ended(t, "over a slow link", whole)
				o.carried(t, 3<<20)
			})
		}
	})
}
