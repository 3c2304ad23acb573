// The holder: every connection is established, or counted with its cause; nothing is waited for beyond a limit;
// nothing stays open. And what an idle connection costs.

package testee

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holder holds connections to a testee.
func holder(t *testing.T, network, address string, change func(*HoldOptions)) *Holder {
	t.Helper()
	o := HoldOptions{Network: network, Address: address, Timeout: patience, Patience: patience}
	if change != nil {
		change(&o)
	}
	h, err := NewHolder(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func TestHolder(t *testing.T) {
	onEach(t, func(t *testing.T, engine, spec string) {
		for _, tc := range []struct {
			name    string
			n       int
			sources []netip.Addr
			change  func(*HoldOptions)
			delayed time.Duration
		}{
			{"one", 1, nil, nil, 0},
			{"many", 300, nil, nil, 0},
			{"sources", 300, []netip.Addr{sourceAddress(0), sourceAddress(1), sourceAddress(251)}, nil, 0},
			{"batches", 25, nil, func(o *HoldOptions) { o.Batch, o.Delay = 10, 20*time.Millisecond }, 40 * time.Millisecond},
			{"a batch for all", 25, nil, func(o *HoldOptions) { o.Batch, o.Delay = 25, time.Hour }, 0},
		} {
			t.Run(tc.name, func(t *testing.T) {
				te := start(t, spec, Config{Engine: engine})
				h := holder(t, te.Addr().Network(), te.Addr().String(), tc.change)
				if err := h.Open(t.Context(), Share{Connections: tc.n, Sources: tc.sources}); err != nil {
					t.Fatal(err)
				}
				if h.Established() != tc.n || len(h.Failed) != 0 || h.Delayed != tc.delayed || h.Connect.Distribution().Count != int64(tc.n) {
					t.Errorf("%d of %d, failed %v, delayed %s", h.Established(), tc.n, h.Failed, h.Delayed)
				}
				checkSources(t, h, tc.sources)
				if n := h.Echo(t.Context(), patience); n != tc.n {
					t.Errorf("%d of %d echoed", n, tc.n)
				}
				n := int64(tc.n)
				want := Stats{Accepted: n, Open: n, In: n, Out: n}
				until(t, fmt.Sprintf("the testee's count of %+v", want), func() bool { return te.Stats() == want })
				h.Close()
				until(t, "the end of every connection", func() bool { return te.Stats().Open == 0 })
			})
		}
	})
}

// checkSources wants every address used, and equally often.
func checkSources(t *testing.T, h *Holder, want []netip.Addr) {
	t.Helper()
	if h.family != unix.AF_INET || want == nil {
		return
	}
	used := map[netip.Addr]int{}
	for _, fd := range h.open {
		sa, err := unix.Getsockname(int(fd))
		if err != nil {
			t.Fatal(err)
		}
		used[netip.AddrFrom4(sa.(*unix.SockaddrInet4).Addr)]++
	}
	each := map[netip.Addr]int{}
	for _, a := range want {
		each[a] = len(h.open) / len(want)
	}
	if !maps.Equal(used, each) {
		t.Errorf("the source addresses are used %v times, want %v", used, each)
	}
}

// full listens with a backlog that is full: nobody accepts, and what comes next waits.
func full(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d, err := fileOf(l)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.Listen(int(d.Fd()), 1); err != nil { // the same socket again, with another backlog
		t.Fatal(err)
	}
	return l
}

func TestHolderCountsFailuresByCause(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	soon := func(o *HoldOptions) { o.Timeout = 300 * time.Millisecond }
	for _, tc := range []struct {
		name, network, address string
		change                 func(*HoldOptions)
		cause                  string
		some                   bool // a few are established
	}{
		{"nobody", "tcp", nobody, nil, "connection refused", false},
		{"no socket", "unix", filepath.Join(t.TempDir(), "none"), nil, "no such file or directory", false},
		{"full tcp", "tcp", full(t, "tcp4", "127.0.0.1:0").Addr().String(), soon, "no answer in time", true},
		{"full unix", "unix", full(t, "unix", filepath.Join(t.TempDir(), "full")).Addr().String(), soon, "the accept backlog is full", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := holder(t, tc.network, tc.address, tc.change)
			if err := h.Open(t.Context(), Share{Connections: 20}); err != nil {
				t.Fatal(err)
			}
			got := h.Established()
			if len(h.Failed) != 1 || h.Failed[tc.cause]+got != 20 || (got > 0) != tc.some {
				t.Errorf("%d were established, and these failed: %v", got, h.Failed)
			}
		})
	}
	for _, address := range []string{"no.such.host.invalid:1", "127.0.0.1"} {
		if _, err := NewHolder(HoldOptions{Network: "tcp", Address: address}); err == nil {
			t.Errorf("%s is an address", address)
		}
	}
}

// TestHolderWaitsForRoom: a server that accepts late gets every connection in the end.
func TestHolderWaitsForRoom(t *testing.T) {
	l := full(t, "unix", filepath.Join(t.TempDir(), "s"))
	h := holder(t, "unix", l.Addr().String(), nil)
	const n = 50
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(20 * time.Millisecond)
		for range n {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
		}
	}()
	if err := h.Open(t.Context(), Share{Connections: n}); err != nil || h.Established() != n {
		t.Errorf("%d of %d were established, %v: %v", h.Established(), n, err, h.Failed)
		l.Close()
	}
	<-done
}

// TestHolderIsInterrupted: while it waits, and in the pause after a batch.
func TestHolderIsInterrupted(t *testing.T) {
	reason := errors.New("enough")
	te := start(t, "127.0.0.1:0", Config{})
	for name, h := range map[string]*Holder{
		"waiting": holder(t, "tcp", full(t, "tcp4", "127.0.0.1:0").Addr().String(), nil),
		"pausing": holder(t, "tcp", te.Addr().String(), func(o *HoldOptions) { o.Batch, o.Delay = 1, time.Hour }),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
			if err := h.Open(ctx, Share{Connections: 10}); !errors.Is(err, reason) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestHolderAgainstServersThatDoNotEcho: the count is the truth, and the wait has an end.
func TestHolderAgainstServersThatDoNotEcho(t *testing.T) {
	for _, tc := range []struct {
		mode string
		want int
	}{{"discard", 0}, {"echo", 10}} {
		te := start(t, tc.mode+"=127.0.0.1:0", Config{})
		h := holder(t, "tcp", te.Addr().String(), nil)
		if err := h.Open(t.Context(), Share{Connections: 10}); err != nil {
			t.Fatal(err)
		}
		limit := patience
		if tc.want == 0 {
			limit = 300 * time.Millisecond
		}
		if n := h.Echo(t.Context(), limit); n != tc.want {
			t.Errorf("%s: %d of 10 echoed", tc.mode, n)
		}
	}
	// A server that closes instead of an answer.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	h := holder(t, "tcp", l.Addr().String(), nil)
	if err := h.Open(t.Context(), Share{Connections: 10}); err != nil {
		t.Fatal(err)
	}
	if n := h.Echo(t.Context(), patience); n != 0 {
		t.Errorf("%d of 10 echoed on connections that the server has closed", n)
	}
}

// TestIdleConnectionsAreCheap: less than 1 KiB of our memory for each, with the epoll engine. The clients are
// in another process; the kernel's memory for a socket is not ours.
func TestIdleConnectionsAreCheap(t *testing.T) {
	const n = 2000
	limit, err := FileLimit()
	if err != nil {
		t.Fatal(err)
	}
	p, err := MakePlan(n, limit, FromLoopback)
	if err != nil {
		t.Fatal(err)
	}
	te := start(t, "127.0.0.1:0", Config{Engine: EngineEpoll})
	answered(t, te)
	before := memory()
	var each float64
	h, err := HoldAll(t.Context(), p, HoldOptions{Network: "tcp", Address: te.Addr().String(), Timeout: patience, Patience: patience}, 0, func(Held) {
		until(t, fmt.Sprintf("%d connections", n), func() bool { return te.Stats().Open >= n })
		each = float64(memory()-before) / n
	})
	if err != nil || h.Established != n || h.Echoed != n {
		t.Fatalf("%+v, %v", h, err)
	}
	if each >= 1024 || each < 1 { // each is at least an entry of a table: less would mean that it was not measured
		t.Errorf("%.0f bytes for an idle connection, want less than 1024", each)
	}
	t.Logf("%.0f bytes for an idle connection", each)
}

// memory is what the program has in use, in bytes.
func memory() int64 {
	runtime.GC()
	runtime.GC() // what finalizers have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
