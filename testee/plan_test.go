// What a plan promises, for all that one may ask: no process beyond its file limit, no source address beyond
// its connections, no address in two processes, and every connection in exactly one share.

package testee

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		n, limit           int
		from               Origin
		processes, sources int
		words              string
	}{
		{1, 1024, FromLoopback, 1, 1, "1 client processes, since each may have 1024 open files"},
		{100, 20_000, FromLoopback, 1, 1, "1 source addresses, at most 4500 connections each"},
		{4_500, 20_000, FromLoopback, 1, 1, "1 source addresses"},
		{4_501, 20_000, FromLoopback, 1, 2, "2 source addresses"},
		{19_800, 20_000, FromLoopback, 1, 5, "1 client processes"},
		{19_801, 20_000, FromLoopback, 2, 6, "2 client processes"},
		{60_000, 20_000, FromLoopback, 4, 16, "16 source addresses, at most 4500 connections each"},
		{250_000, 20_000, FromLoopback, 13, 65, "13 client processes"},
		{2_000_000, 1 << 20, FromLoopback, 2, 446, "2 client processes"},
		{10, 201, FromLoopback, 10, 10, "10 client processes, since each may have 201 open files"},
		{28_000, 1 << 20, FromHost, 1, 1, "1 client processes"},
		{28_001, 1 << 20, FromHost, 1, 1, "one source address: the kernel has some 28,000 ephemeral ports for it"},
		{60_000, 20_000, FromHost, 4, 1, "4 client processes"},
		{60_000, 1 << 20, FromPath, 1, 1, "1 client processes"},
	} {
		t.Run(fmt.Sprintf("%d of %d from %d", tc.n, tc.limit, tc.from), func(t *testing.T) {
			p, err := MakePlan(tc.n, tc.limit, tc.from)
			if err != nil || p.Processes != tc.processes || p.Sources != tc.sources || p.FileLimit != tc.limit {
				t.Errorf("%+v, %v; want %d processes and %d sources", p, err, tc.processes, tc.sources)
			}
			words := strings.Join(p.Words, "\n")
			if tc.from == FromPath && strings.Contains(words, "ports") {
				t.Errorf("ports of a Unix socket: %s", words)
			}
			if !strings.Contains(words, tc.words) {
				t.Errorf("%q was not said, but:\n%s", tc.words, words)
			}
			checkShares(t, p)
		})
	}
}

// TestPlansKeepTheirPromises tries sizes around every boundary.
func TestPlansKeepTheirPromises(t *testing.T) {
	for _, limit := range []int{201, 256, 1024, 4_699, 4_700, 4_701, 9_201, 20_000, 65_536, 1 << 20} {
		room := limit - reserveFiles
		for _, n := range []int{1, 2, room - 1, room, room + 1, 2*room + 1, 3 * room, perSource, perSource + 1, 60_000, 250_000} {
			if n < 1 || n/room > 1_000 {
				continue
			}
			for _, from := range []Origin{FromHost, FromLoopback, FromPath} {
				p, err := MakePlan(n, limit, from)
				if err != nil {
					t.Fatalf("%d connections with %d files: %v", n, limit, err)
				}
				checkShares(t, p)
			}
		}
	}
}

// checkShares looks at everything that a plan's shares must be.
func checkShares(t *testing.T, p Plan) {
	t.Helper()
	sum, used := 0, map[netip.Addr]bool{}
	for i, s := range p.Shares() {
		if sum += s.Connections; s.Connections > p.FileLimit-reserveFiles || s.Index != i {
			t.Errorf("%+v: share %d is number %d with %d connections", p, i, s.Index, s.Connections)
		}
		if p.Sources > 1 && len(s.Sources) == 0 {
			t.Errorf("%+v: share %d has no source address", p, i)
		}
		if n := len(s.Sources); n > 0 && (s.Connections+n-1)/n > perSource {
			t.Errorf("%+v: share %d has %d connections for %d addresses", p, i, s.Connections, n)
		}
		for _, a := range s.Sources {
			if used[a] || !a.IsLoopback() || a == netip.MustParseAddr("127.0.0.1") {
				t.Errorf("%+v: %s is used twice, or is the servers'", p, a)
			}
			used[a] = true
		}
	}
	if sum != p.Connections {
		t.Errorf("%+v: the shares hold %d", p, sum)
	}
	// The bound, and ours: both keep a kernel's search for a free port short.
	if perSource > 10_000 {
		t.Errorf("%d connections for one source address", perSource)
	}
}

func TestPlanWithoutRoom(t *testing.T) {
	for _, limit := range []int{0, 100, reserveFiles} {
		if _, err := MakePlan(1, limit, FromLoopback); err == nil || !strings.Contains(err.Error(), "ulimit -n") || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
			t.Errorf("a limit of %d files: %v", limit, err)
		}
	}
}
