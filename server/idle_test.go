// What a stream costs on which nothing is said.

package main

import (
	"io"
	"runtime"
	"testing"
	"time"

	"muxperf/protocol"
	"muxperf/transport"
)

// TestIdleStreamsAreSmall: no buffer and no goroutine waits with a stream but its own, until something comes.
func TestIdleStreamsAreSmall(t *testing.T) {
	addr, end := started(t)
	s := dialed(t, addr)
	defer s.Close()
	live := func() (heap int64, goroutines int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc), runtime.NumGoroutine()
	}
	const n = 200
	heap, goroutines := live()
	var streams []transport.Stream
	for range n {
		st, err := s.Open(t.Context(), protocol.Echo)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	if after, _ := live(); after-heap > n*64<<10 { // both ends are in this process
		t.Errorf("an idle stream holds %d bytes", (after-heap)/n)
	}
	for patience := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // those that negotiated end a little later
		_, after := live()
		if after-goroutines < n+n/2 {
			break
		}
		if time.Now().After(patience) {
			t.Fatalf("%d goroutines for %d idle streams", after-goroutines, n)
		}
	}
	for i, st := range streams { // and each is of use still
		want := []byte{byte(i), 1, 2, 3}
		got := make([]byte, len(want))
		if _, err := st.Write(want); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(st, got); err != nil || string(got) != string(want) {
			t.Fatalf("stream %d gave %v back: %v", i, got, err)
		}
		st.Close()
	}
	s.Close()
	if text, err := end(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
