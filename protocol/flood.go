// Flooding and draining: the loops in which a throughput test spends its time.

package protocol

import (
	"errors"
	"io"
)

// An Allowance says how many bytes the sender may write next: at most want, 0 to stop for good. It
// may sleep to keep to a rate. It is where duration, byte budget and pacing meet.
type Allowance func(want int) int

// Send writes payload to w in blocks, as long as allow lets it, and counts what w took. It
// returns the number of bytes written.
func Send(w io.Writer, payload *Payload, block int, allow Allowance, count Counter) (uint64, error) {
	var sent uint64
	for {
		n := allow(block)
		if n <= 0 {
			return sent, nil
		}
		m, err := w.Write(payload.Next(n))
		sent += uint64(m)
		count.Add(m)
		if err != nil {
			return sent, err
		}
	}
}

// Drain reads r to its end and counts what arrives; a non-nil check sees every byte. It returns the
// number of bytes read; the end of data is no error.
func Drain(r io.Reader, buf []byte, check *Payload, count Counter) (uint64, error) {
	var got uint64
	for {
		n, err := r.Read(buf)
		if n > 0 {
			got += uint64(n)
			count.Add(n)
			if check != nil {
				if bad := check.Check(buf[:n]); bad != nil {
					return got, bad
				}
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return got, err
		}
	}
}

// For returns an Allowance of exactly n bytes.
func For(n uint64) Allowance {
	return func(want int) int {
		w := int(min(uint64(want), n))
		n -= uint64(w)
		return w
	}
}
