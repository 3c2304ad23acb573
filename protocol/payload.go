// The payload: random bytes, so that no layer can compress or shortcut them, arranged so that the
// receiver can tell every byte from its offset alone.
//
// A pattern of P random bytes repeats for ever; the byte at offset o of a stream is pattern[o % P].
// P is prime and larger than any block, so that a block that is lost, doubled or swapped shifts
// what follows and is seen. The pattern is followed by a copy of its beginning: any block is one
// slice of it, and sending costs no copy.

package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// MaxBlock is the largest block, in bytes.
const MaxBlock = 1 << 20

const (
	verifyPeriod = 1_048_583 // the least prime above MaxBlock
	plainPeriod  = 131_101   // without verification a pattern that stays in the cache; prime too
)

// ErrPayload: a byte that arrived is not the one that was sent.
var ErrPayload = errors.New("payload verification failed")

// A Payload yields the bytes of one stream in order. It is not safe for concurrent use.
type Payload struct {
	pattern []byte // one period, and its beginning again
	period  int
	offset  int // in the period
	total   uint64
}

// NewPattern makes the pattern that a seed stands for, long enough for blocks of up to block
// bytes. Streams may share it.
func NewPattern(seed [16]byte, block int, verify bool) []byte {
	period := plainPeriod
	if verify || block > plainPeriod {
		period = verifyPeriod
	}
	var key [32]byte
	copy(key[:], seed[:])
	rng := rand.NewChaCha8(key)
	p := make([]byte, period, period+block)
	for i := 0; i < len(p); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(p[i:], word[:])
	}
	return append(p, p[:block]...)
}

// NewPayload starts a stream of pattern, which NewPattern made for blocks of block bytes.
func NewPayload(pattern []byte, block int) *Payload {
	return &Payload{pattern: pattern, period: len(pattern) - block}
}

// Next returns the next n bytes of the stream, at most a block. They must not be changed.
func (p *Payload) Next(n int) []byte {
	b := p.pattern[p.offset : p.offset+n]
	p.offset = (p.offset + n) % p.period
	return b
}

// Check compares the next len(b) bytes of the stream with b. The error wraps ErrPayload and names
// the offset of the first byte that differs.
func (p *Payload) Check(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), p.period-p.offset)
		want := p.pattern[p.offset : p.offset+n]
		if !bytes.Equal(b[:n], want) {
			for i := range want {
				if want[i] != b[i] {
					return fmt.Errorf("%w at byte %d of the stream: %#02x arrived, %#02x was sent",
						ErrPayload, p.total+uint64(i), b[i], want[i])
				}
			}
		}
		p.total += uint64(n)
		p.offset = (p.offset + n) % p.period
		b = b[n:]
	}
	return nil
}
