// Writing frames: RFC 6455, sections 5.2 and 5.3.

package ws

import (
	"crypto/subtle"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// A Mask makes the masking keys of a client's frames.
type Mask string

// The masks: random is the standard's, the others are for measuring what masking costs.
const (
	MaskRandom Mask = "random"
	MaskFixed  Mask = "fixed"
	MaskZero   Mask = "zero"
)

func (m Mask) key() (k [4]byte) {
	switch m {
	case MaskZero:
	case MaskFixed:
		k = [4]byte{0x5a, 0xa5, 0x3c, 0xc3}
	default:
		binary.LittleEndian.PutUint32(k[:], rand.Uint32())
	}
	return k
}

// Append appends a whole message, whose payload is head and then body, as one frame. A client's is masked.
func Append(dst []byte, op byte, client bool, mask Mask, head, body []byte) []byte {
	n := len(head) + len(body)
	maskBit := byte(0)
	if client {
		maskBit = 0x80
	}
	dst = append(dst, 0x80|op)
	switch {
	case n < 126:
		dst = append(dst, maskBit|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, maskBit|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, maskBit|127), uint64(n))
	}
	var key [4]byte
	if client {
		key = mask.key()
		dst = append(dst, key[:]...)
	}
	if key == [4]byte{} {
		return append(append(dst, head...), body...)
	}
	dst = appendMasked(dst, head, key)
	for range len(head) % len(key) { // the body goes on where the head has left the key
		key = [4]byte{key[1], key[2], key[3], key[0]}
	}
	return appendMasked(dst, body, key)
}

// patternLen is how much of a repeated key a payload is combined with at once: long enough that the call does
// not count, short enough to stay in the first cache.
const patternLen = 2 << 10

// appendMasked appends b combined with the repeated key, in one pass over it.
func appendMasked(dst, b []byte, key [4]byte) []byte {
	var pattern [patternLen]byte
	used := pattern[:min(patternLen, (len(b)+7)&^7)]
	word := uint64(binary.LittleEndian.Uint32(key[:]))
	word |= word << 32
	for i := 0; i < len(used); i += 8 {
		binary.LittleEndian.PutUint64(used[i:], word)
	}
	at := len(dst)
	dst = slices.Grow(dst, len(b))[:at+len(b)]
	for out := dst[at:]; len(b) > 0; {
		n := subtle.XORBytes(out, b, used)
		out, b = out[n:], b[n:]
	}
	return dst
}

// Control makes a small frame: a pong, or a close with a code.
func Control(op byte, payload []byte, client bool) []byte {
	return Append(nil, op, client, MaskRandom, nil, payload)
}

// Pong answers a ping.
func Pong(payload []byte, client bool) []byte { return Control(opPong, payload, client) }

// Close ends a WebSocket.
func Close(code int, client bool) []byte {
	return Control(opClose, binary.BigEndian.AppendUint16(nil, uint16(code)), client)
}
