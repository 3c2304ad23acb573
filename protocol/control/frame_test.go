package control

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestMessagesSurviveTheWire(t *testing.T) {
	long := Done{Sent: make([]uint64, 100_000)} // some 200 KB: several frames
	for i := range long.Sent {
		long.Sent[i] = uint64(i)
	}
	var buf bytes.Buffer
	if err := writeMessage(&buf, TypeDone, long); err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(&buf, TypeStart, struct{}{}); err != nil {
		t.Fatal(err)
	}
	kind, body, err := readMessage(&buf)
	if err != nil || kind != TypeDone {
		t.Fatalf("read %s, %v", kind, err)
	}
	var got Done
	if err := decode(kind, body, &got); err != nil || len(got.Sent) != len(long.Sent) || got.Sent[99_999] != 99_999 {
		t.Errorf("%d numbers came back, %v", len(got.Sent), err)
	}
	if kind, _, err := readMessage(&buf); err != nil || kind != TypeStart {
		t.Errorf("then %s, %v", kind, err)
	}
	if _, _, err := readMessage(&buf); err != io.EOF {
		t.Errorf("then %v, want io.EOF", err)
	}
}

// TestKnownBytes holds the wire form against docs/protocol.md.
func TestKnownBytes(t *testing.T) {
	var buf bytes.Buffer
	if err := writeMessage(&buf, TypeProgress, Progress{Sent: 1, Received: 2}); err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x18\x07" + `{"sent":1,"received":2}`; buf.String() != want {
		t.Errorf("wrote %q, want %q", buf.String(), want)
	}
}

func TestBadMessagesAreNamed(t *testing.T) {
	for _, tc := range []struct{ name, bytes, want string }{
		{"no length", "0000000003", "0 bytes"},
		{"too long", "0001000103", "65537 bytes"},
		{"another type inside", "000000028341" + "0000000204" + "41", "inside"},
		{"cut in a frame", "0000000a037b", "unexpected EOF"},
		{"cut between frames", "000000028341", "unexpected EOF"},
	} {
		b, err := hex.DecodeString(tc.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := readMessage(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it to say %q", tc.name, err, tc.want)
		}
	}
	endless := bytes.Repeat(append([]byte{0, 1, 0, 0, 0x83}, make([]byte, maxFrame-1)...), maxMessage/maxFrame+2)
	if _, _, err := readMessage(bytes.NewReader(endless)); !errors.Is(err, ErrWire) {
		t.Errorf("an endless message: %v, want ErrWire", err)
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x18\x07" + `{"sent":1,"received":2}`))
	f.Add([]byte{0, 0, 0, 2, 0x83, 'x', 0, 0, 0, 2, 3, 'y'})
	f.Add([]byte{0, 0, 0, 3, 9, '{', '}'})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			kind, body, err := readMessage(r)
			if err != nil {
				return
			}
			if len(body) > len(in) {
				t.Fatalf("%d bytes of body from %d", len(body), len(in))
			}
			for _, v := range []any{&Greeting{}, &Request{}, &Grant{}, &Done{}, &Report{}, &Abort{}} {
				_ = decode(kind, body, v)
			}
		}
	})
}

func FuzzStreamHeader(f *testing.F) {
	f.Add(StreamHeader{Run: [16]byte{1}, Connection: 2, Stream: 3}.Append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ReadStreamHeader(bytes.NewReader(in))
		if err == nil && !bytes.Equal(h.Append(nil), in[:24]) {
			t.Errorf("% x became %+v", in, h)
		}
	})
}
