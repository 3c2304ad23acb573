// A benchmark of our own exchange: what a run costs beside its payload, from the request to both ends' results.
//
//	go test -run - -bench . ./protocol/control

package control

import (
	"testing"
	"time"
)

func BenchmarkRunOfOneByte(b *testing.B) {
	h := newHarness(b, &Server{}, 1)
	client := Client{Agent: "client/bench", Clock: time.Now}
	p := flood(func(p *Params) { p.Bytes, p.Block = 1, 1 })
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := client.Run(b.Context(), h.sessions, p); err != nil {
			b.Fatal(err)
		}
		if r := <-h.results; r.err != nil {
			b.Fatal(r.err)
		}
	}
}
