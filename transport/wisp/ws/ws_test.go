package ws

import (
	"bufio"
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	gobwas "github.com/gobwas/ws"
)

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func reader(b []byte, server bool, pong func([]byte) error) *Reader {
	return NewReader(bufio.NewReader(bytes.NewReader(b)), server, 1<<20, pong)
}

func grow(b []byte, n int) []byte { return append(make([]byte, 0, n), b...) }

// TestAppend: another implementation reads what Append writes, for every form of the length and every position
// of the body in the key.
func TestAppend(t *testing.T) {
	for _, n := range []int{0, 1, 3, 7, 8, 15, 119, 120, 121, 125, 126, 2047, 2048, 2049, 65529, 65530, 65535, 65536, 200000} {
		for _, headLen := range []int{0, 1, 2, 3, 4, 5} {
			for _, mask := range []Mask{MaskRandom, MaskFixed, MaskZero, ""} {
				client := mask != ""
				head, body := random(headLen), random(n)
				frame := Append([]byte("before"), OpBinary, client, mask, head, body)
				if !bytes.HasPrefix(frame, []byte("before")) {
					t.Fatal("what stood there before is gone")
				}
				r := bytes.NewReader(frame[len("before"):])
				h, err := gobwas.ReadHeader(r)
				if err != nil || r.Len() != int(h.Length) || h.Masked != client || h.OpCode != gobwas.OpBinary || !h.Fin {
					t.Fatalf("%d+%d bytes, mask %q: %+v, %d left, %v", headLen, n, mask, h, r.Len(), err)
				}
				payload := frame[len(frame)-r.Len():]
				if client {
					gobwas.Cipher(payload, h.Mask, 0)
				}
				if want := append(head, body...); !bytes.Equal(payload, want) {
					t.Fatalf("%d+%d bytes, mask %q: the payload differs", headLen, n, mask)
				}
			}
		}
	}
}

// TestMasksDiffer: each frame has a key of its own, as the standard has it.
func TestMasksDiffer(t *testing.T) {
	body := make([]byte, 64)
	seen := map[string]bool{}
	for range 8 {
		seen[string(Append(nil, OpBinary, true, MaskRandom, nil, body))] = true
	}
	if len(seen) < 7 { // two of eight keys may be equal once in a hundred million runs
		t.Errorf("%d different frames of 8", len(seen))
	}
}

// TestViolations: what the standard forbids, and the code that it names.
func TestViolations(t *testing.T) {
	masked := func(b ...byte) []byte { return b }
	for _, tc := range []struct {
		name  string
		bytes []byte
		code  int
	}{
		{"not masked", masked(0x82, 0x00), CloseProtocol},
		{"text", masked(0x81, 0x80, 0, 0, 0, 0), CloseUnsupported},
		{"reserved bit", masked(0xc2, 0x80, 0, 0, 0, 0), CloseProtocol},
		{"continuation of nothing", masked(0x80, 0x80, 0, 0, 0, 0), CloseProtocol},
		{"message in a message", masked(0x02, 0x80, 0, 0, 0, 0, 0x82, 0x80, 0, 0, 0, 0), CloseProtocol},
		{"unknown opcode", masked(0x83, 0x80, 0, 0, 0, 0), CloseProtocol},
		{"long ping", masked(0x89, 0xfe, 0, 126), CloseProtocol},
		{"ping in fragments", masked(0x09, 0x80, 0, 0, 0, 0), CloseProtocol},
		{"unknown control", masked(0x8b, 0x80, 0, 0, 0, 0), CloseProtocol},
		{"too large", masked(0x82, 0xff, 0, 0, 0, 0, 0, 0x20, 0, 0), CloseTooBig},
		{"negative length", masked(0x82, 0xff, 0xff, 0, 0, 0, 0, 0x20, 0, 0), CloseTooBig},
	} {
		_, err := reader(tc.bytes, true, nil).Next(nil, grow)
		var v *ProtocolError
		if !errors.As(err, &v) || v.Code != tc.code {
			t.Errorf("%s: %v, want code %d", tc.name, err, tc.code)
		}
	}
	if _, err := reader([]byte{0x82, 0x80, 0, 0, 0, 0}, false, nil).Next(nil, grow); err == nil {
		t.Error("a client took a masked frame")
	}
}

// TestFragments: a message in pieces, with a ping in between, is one.
func TestFragments(t *testing.T) {
	var wire []byte
	piece := func(op byte, fin bool, b string) {
		f := Append(nil, op, true, MaskRandom, nil, []byte(b))
		if !fin {
			f[0] &^= 0x80
		}
		wire = append(wire, f...)
	}
	piece(OpBinary, false, "one ")
	piece(opPing, true, "still there?")
	piece(opContinuation, false, "two ")
	piece(opContinuation, true, "three")
	piece(opClose, true, "")
	var pings []string
	r := reader(wire, true, func(b []byte) error { pings = append(pings, string(b)); return nil })
	got, err := r.Next(nil, grow)
	if err != nil || string(got) != "one two three" || len(pings) != 1 || pings[0] != "still there?" {
		t.Errorf("%q, %v, %v", got, pings, err)
	}
	if _, err := r.Next(nil, grow); !errors.Is(err, ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
}

// FuzzReader: no input ends the reader with anything but a message within its limit or an error.
func FuzzReader(f *testing.F) {
	f.Add(Append(nil, OpBinary, true, MaskFixed, []byte("head"), []byte("body")), true)
	f.Add(Append(nil, OpBinary, false, "", nil, make([]byte, 300)), false)
	f.Add([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4}, true)
	f.Fuzz(func(t *testing.T, b []byte, server bool) {
		r := NewReader(bufio.NewReader(bytes.NewReader(b)), server, 1000, func([]byte) error { return nil })
		for {
			m, err := r.Next(nil, grow)
			if err != nil {
				return
			}
			if len(m) > 1000 {
				t.Fatalf("a message of %d bytes, beyond the limit", len(m))
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for name, client := range map[string]bool{"client": true, "server": false} {
		b.Run(name, func(b *testing.B) {
			head, body := random(5), random(51200)
			var buf []byte
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				buf = Append(buf[:0], OpBinary, client, MaskRandom, head, body)
			}
		})
	}
}
