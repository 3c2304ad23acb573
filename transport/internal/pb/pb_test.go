// Tests of the protobuf subset against bytes from the encoding guide.

package pb

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	b := AppendVarint(nil, 1, 150)   // the guide's first example
	b = AppendBytes(b, 2, "testing") // its second
	b = AppendBytes(b, 16, []byte{}) // a tag of two bytes
	b = AppendVarint(b, 3, 1<<64-1)  // the largest number
	const want = "08960112" + "0774657374696e67" + "820100" + "18ffffffffffffffffff01"
	if got := hex.EncodeToString(b); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	var fields []string
	err := Each(b, func(f Field) error {
		fields = append(fields, fmt.Sprintf("%d %t %d %s", f.Number, f.IsBytes, f.Varint, f.Bytes))
		return nil
	})
	if got := strings.Join(fields, "|"); err != nil || got != "1 false 150 |2 true 0 testing|16 true 0 |3 false 18446744073709551615 " {
		t.Errorf("%s, %v", got, err)
	}
}

func TestFixedWidthIsSkipped(t *testing.T) {
	b, _ := hex.DecodeString("0d01020304" + "110102030405060708" + "1805")
	var last Field
	n := 0
	if err := Each(b, func(f Field) error { last = f; n++; return nil }); err != nil || n != 3 || last.Varint != 5 {
		t.Errorf("%d fields, the last %+v, %v", n, last, err)
	}
}

func TestEachRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"cut tag":           "80",
		"cut number":        "0880",
		"number too large":  "08ffffffffffffffffff7f",
		"cut length":        "0a",
		"cut bytes":         "0a0301",
		"length overflows":  "0affffffffffffffffff01",
		"cut fixed32":       "0d010203",
		"cut fixed64":       "1101020304050607",
		"field zero":        "0001",
		"group":             "0b",
		"type seven":        "0f",
		"field beyond 2^29": "8080808010" + "01",
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := Each(b, func(Field) error { return nil }); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	stop := errors.New("stop")
	if err := Each([]byte{8, 1, 8, 2}, func(Field) error { return stop }); err != stop {
		t.Errorf("the visitor's error became %v", err)
	}
}

func FuzzEach(f *testing.F) {
	f.Add([]byte{8, 150, 1, 18, 1, 'x'})
	f.Add([]byte{0x0d, 1, 2, 3, 4})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		collect := func(out *[]byte) func(Field) error {
			return func(f Field) error {
				if f.IsBytes {
					*out = AppendBytes(*out, f.Number, f.Bytes)
				} else {
					*out = AppendVarint(*out, f.Number, f.Varint)
				}
				return nil
			}
		}
		if Each(b, collect(&again)) != nil {
			return
		}
		var twice []byte
		if err := Each(again, collect(&twice)); err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("%x was read as %x, %v", again, twice, err)
		}
	})
}
