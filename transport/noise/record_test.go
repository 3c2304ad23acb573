// Tests of damaged records: whatever happens to the bytes on their way, what is delivered is what
// was sealed, and then an error.

package noise

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// sealed returns the wire form of plaintexts with nonces from 0.
func sealed(aead cipher.AEAD, plain ...[]byte) [][]byte {
	var out [][]byte
	for i, p := range plain {
		nonce := make([]byte, 12)
		binary.LittleEndian.PutUint64(nonce[4:], uint64(i))
		rec := binary.BigEndian.AppendUint16(nil, uint16(len(p)+tagSize))
		out = append(out, aead.Seal(rec, nonce, p, nil))
	}
	return out
}

func TestDamagedRecords(t *testing.T) {
	for _, size := range []int{10, 30_000} { // opened inline, and by helpers
		plain := make([][]byte, 6)
		for i := range plain {
			plain[i] = bytes.Repeat([]byte{byte('a' + i)}, size)
		}
		flip := func(at int) func([][]byte) []byte {
			return func(r [][]byte) []byte {
				r[2][at] ^= 1
				return bytes.Join(r, nil)
			}
		}
		cases := map[string]struct {
			damage func([][]byte) []byte
			whole  int
			want   error
		}{
			"none":            {func(r [][]byte) []byte { return bytes.Join(r, nil) }, 6, io.EOF},
			"flipped byte":    {flip(2), 2, errRecord},
			"flipped tag":     {flip(size + 2 + 15), 2, errRecord},
			"swapped":         {func(r [][]byte) []byte { r[2], r[3] = r[3], r[2]; return bytes.Join(r, nil) }, 2, errRecord},
			"dropped":         {func(r [][]byte) []byte { return bytes.Join(append(r[:2], r[3:]...), nil) }, 2, errRecord},
			"repeated":        {func(r [][]byte) []byte { r[2] = r[1]; return bytes.Join(r, nil) }, 2, errRecord},
			"cut in a record": {func(r [][]byte) []byte { return bytes.Join(r, nil)[:3*(size+18)-1] }, 2, io.ErrUnexpectedEOF},
			"cut in a length": {func(r [][]byte) []byte { return bytes.Join(r, nil)[:3*(size+18)+1] }, 3, io.ErrUnexpectedEOF},
			"cut between":     {func(r [][]byte) []byte { return bytes.Join(r[:4], nil) }, 4, io.EOF},
			"shorter than tag": {func(r [][]byte) []byte {
				r[2] = []byte{0, 15}
				r[2] = append(r[2], make([]byte, 15)...)
				return bytes.Join(r, nil)
			}, 2, nil},
		}
		for name, c := range cases {
			for _, readSize := range []int{7, 1 << 20} {
				t.Run(fmt.Sprintf("%s/%d/read %d", name, size, readSize), func(t *testing.T) {
					wire := c.damage(sealed(testAEAD(t, 1), plain...))
					a, b := tcpPair(t)
					cb := newConn(b, testAEAD(t, 2), testAEAD(t, 1), 3)
					defer cb.Close()
					go func() { a.Write(wire); a.Close() }()
					got, err := readAll(cb, readSize)
					if want := bytes.Join(plain[:c.whole], nil); !bytes.Equal(got, want) {
						t.Errorf("%d bytes were delivered, want exactly the %d before the damage", len(got), len(want))
					}
					if err == nil || (c.want != nil && !errors.Is(err, c.want)) || (c.want == nil && errors.Is(err, io.EOF)) {
						t.Errorf("error %v, want %v", err, c.want)
					}
					if _, again := cb.Read(make([]byte, 1)); again != err {
						t.Errorf("the next Read returns %v, want the same error again", again)
					}
				})
			}
		}
	}
}

// readAll reads to an error, which it returns even if that is io.EOF.
func readAll(r io.Reader, size int) (got []byte, err error) {
	buf := make([]byte, size)
	for err == nil {
		var n int
		n, err = r.Read(buf)
		got = append(got, buf[:n]...)
	}
	return got, err
}

func FuzzRecords(f *testing.F) {
	aead, _ := chacha20poly1305.New(bytes.Repeat([]byte{1}, 32))
	good := sealed(aead, []byte("hello"), nil, bytes.Repeat([]byte("x"), 5000))
	f.Add(bytes.Join(good, nil), 10)
	f.Add([]byte{0, 0}, 1)
	f.Add([]byte{0, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 1000)
	f.Add(append(append([]byte(nil), good[0]...), good[0]...), 3)
	f.Add([]byte{0xff, 0xff, 1, 2, 3}, 70_000)
	want := append([]byte("hello"), bytes.Repeat([]byte("x"), 5000)...)
	f.Fuzz(func(t *testing.T, wire []byte, size int) {
		if size <= 0 || size > 1<<20 {
			size = 100
		}
		done := make(chan struct{})
		defer close(done)
		open := newCrew(aead, 0, done)
		r := &reader{conn: wireConn{Reader: bytes.NewReader(wire)}, crew: open}
		var got []byte
		buf := make([]byte, size)
		for {
			n, err := r.read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.HasPrefix(want, got) {
			t.Fatalf("%d bytes were delivered that nobody sealed", len(got))
		}
	})
}

// wireConn is a connection of which only the reading side is used.
type wireConn struct {
	net.Conn
	io.Reader
}

func (c wireConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }
