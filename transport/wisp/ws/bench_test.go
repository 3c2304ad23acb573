// A benchmark of reading frames, in memory, masked and not; that of writing them stands with its test.
//
//	go test -run - -bench . ./transport/wisp/ws

package ws

import (
	"bufio"
	"fmt"
	"testing"
)

func benchSizes() []int { return []int{1, 125, 4 << 10, 64 << 10} }

// endlessFrames repeats a frame.
type endlessFrames struct {
	frame []byte
	at    int
}

func (e *endlessFrames) Read(p []byte) (int, error) {
	n := copy(p, e.frame[e.at:])
	if e.at += n; e.at == len(e.frame) {
		e.at = 0
	}
	return n, nil
}

func BenchmarkRead(b *testing.B) {
	for _, mask := range []Mask{MaskRandom, MaskZero} {
		for _, size := range benchSizes() {
			b.Run(fmt.Sprintf("mask=%s/size=%d", mask, size), func(b *testing.B) {
				src := &endlessFrames{frame: Append(nil, OpBinary, true, mask, nil, make([]byte, size))}
				r := NewReader(bufio.NewReaderSize(src, 64<<10), true, 1<<20, func([]byte) error { return nil })
				buf := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for range b.N {
					got, err := r.Next(buf, grow)
					if err != nil || len(got) != size {
						b.Fatalf("%d bytes: %v", len(got), err)
					}
				}
			})
		}
	}
}
