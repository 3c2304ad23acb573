package run

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muxperf/matrix/cell"
	"muxperf/matrix/peer"
	"muxperf/matrix/process"

	"go.uber.org/goleak"
)

// The test binary is its own supervisor, and its own peer.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == process.Supervise {
		os.Exit(process.RunSupervisor(os.Args[2]))
	}
	if len(os.Args) > 2 && os.Args[1] == "fake" {
		fake(os.Args[2], os.Args[3:])
		return
	}
	goleak.VerifyTestMain(m)
}

// fake plays a peer of known behaviour: a server that never gets a byte, and a client that never sends one.
func fake(role string, args []string) {
	behaviour, port := args[0], args[1]
	switch role {
	case "server":
		switch behaviour {
		case "crash":
			fmt.Fprintln(os.Stderr, "cannot listen: no luck today")
			os.Exit(3)
		case "hang":
			time.Sleep(time.Hour)
		case "taken":
			if _, err := os.Stat(args[2]); err != nil {
				os.WriteFile(args[2], nil, 0o600)
				fmt.Fprintln(os.Stderr, "Error: listen EADDRINUSE\n    at listen (net:1:2)\n    at main (x:3:4)")
				os.Exit(1)
			}
		}
		fmt.Printf(`{"event":"ready","address":"127.0.0.1:%s"}`+"\n", port)
		received := 1_000_000_000
		if behaviour == "deaf" {
			received = 999_999_999
		}
		fmt.Printf(`{"event":"result","role":"server","protocol":"/perf/1.0.0","received_bytes":%d,"seconds":1}`+"\n", received)
		orphan := exec.Command("sleep", "300") // what a careless peer leaves behind
		if orphan.Start() == nil && len(args) > 2 {
			os.WriteFile(args[2]+".orphan", []byte(fmt.Sprint(orphan.Process.Pid)), 0o600)
		}
		time.Sleep(time.Hour)
	case "client":
		seconds := 1.0
		switch behaviour {
		case "crash":
			fmt.Println(`{"event":"error","message":"it broke"}`)
			os.Exit(1)
		case "refused":
			fmt.Println(`{"event":"error","message":"no more clients","kind":"refused"}`)
			os.Exit(4)
		case "hang":
			time.Sleep(time.Hour)
		case "unsupported":
			os.Exit(127)
		case "mute":
			os.Exit(0)
		case "instant":
			seconds = 0.00001
		case "talkative":
			for range 5000 {
				fmt.Println(`{"event":"interval"}`)
			}
		}
		fmt.Printf(`{"event":"result","role":"client","protocol":"/perf/1.0.0","sent_bytes":1000000000,"seconds":%v}`+"\n", seconds)
	}
}

type quiet struct{}

func (quiet) Building(*peer.Peer)                       {}
func (quiet) Running(cell.Key, int, int, time.Duration) {}
func (quiet) Ran(cell.Key, cell.Rep)                    {}
func (quiet) Done()                                     {}

// fakePeer is a peer whose programs are this test binary.
func fakePeer(t *testing.T, name, server, client string) *peer.Peer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(t.TempDir(), "note")
	p := &peer.Peer{Name: name, Kind: peer.Kinds{peer.Libp2p}, Stacks: []string{"noise+yamux"}, Result: "json", Dir: "."}
	p.Server = &peer.Server{Command: fmt.Sprintf("exec %s fake server %s {port} %s", exe, server, note), Ready: "json"}
	p.Client = &peer.Client{Command: fmt.Sprintf("exec %s fake client %s {port}", exe, client), Protocols: []string{"/perf/1.0.0"}}
	return p
}

func runner(t *testing.T) *Runner {
	return &Runner{Out: t.TempDir(), Seconds: 1, Reps: 1, Seed: 1, Timeout: 2 * time.Second, RawTCP: 20e9, Progress: quiet{}}
}

// TestKnownPeers: peers of known behaviour come to the states that they deserve.
func TestKnownPeers(t *testing.T) {
	for _, tc := range []struct {
		server, client string
		state          cell.State
		reason         string
	}{
		{"good", "good", cell.OK, ""},
		{"taken", "good", cell.OK, ""},
		{"deaf", "good", cell.Failed, "sent 1000000000 bytes, peer received 999999999"},
		{"crash", "good", cell.Failed, "no luck today"},
		{"good", "crash", cell.Failed, "it broke"},
		{"good", "refused", cell.Refused, "no more clients"},
		{"good", "hang", cell.DNF, "did not finish within"},
		{"good", "unsupported", cell.Unsupported, "code 127"},
		{"good", "mute", cell.Failed, "printed no result"},
		{"good", "talkative", cell.OK, ""},
	} {
		t.Run(tc.server+" and "+tc.client, func(t *testing.T) {
			m := runner(t)
			p := fakePeer(t, "peer", tc.server, tc.client)
			if err := m.Prepare(t.Context(), []*peer.Peer{p}); err != nil {
				t.Fatal(err)
			}
			cells := Cells([]*peer.Peer{p}, Selection{Shapes: []Shape{{1, 1}}})
			m.Measure(t.Context(), cells)
			c := cells[0]
			if c.State != tc.state || !strings.Contains(c.Reason, tc.reason) {
				t.Errorf("%s: %s; want %s: …%s…", c.State, c.Reason, tc.state, tc.reason)
			}
			if tc.state == cell.OK && (c.Median != 8e9 || c.Reps[0].MeasuredAt != "receiver") {
				t.Errorf("the median is %v, want 8 Gbit/s, measured at the receiver: %+v", c.Median, c.Reps[0])
			}
			if tc.state != cell.OK && c.Log == "" {
				t.Error("there is no log")
			}
		})
	}
}

func TestGuard(t *testing.T) {
	a := &attempt{m: &Runner{RawTCP: 10e9}, seconds: 1}
	for _, tc := range []struct {
		rep cell.Rep
		bad string
	}{
		{cell.Rep{Received: 1e9, Seconds: 1, Goodput: 8e9}, ""},
		{cell.Rep{Seconds: 1}, "nothing was moved"},
		{cell.Rep{Received: 1, Seconds: 1e-5}, "less than a round trip"},
		{cell.Rep{Received: 1e9, Seconds: 0.2, Goodput: 8e9}, "of the 1.00 s"},
		{cell.Rep{Received: 1e12, Seconds: 1, Goodput: 8e12}, "faster than raw TCP"},
	} {
		err := a.plausible(&tc.rep)
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%+v: %v, want %q", tc.rep, err, tc.bad)
		}
	}
}

// TestNothingIsLeftBehind: a server that starts a process of its own, and a matrix that is interrupted.
func TestNothingIsLeftBehind(t *testing.T) {
	m := runner(t)
	m.Timeout = time.Minute
	p := fakePeer(t, "peer", "good", "hang")
	if err := m.Prepare(t.Context(), []*peer.Peer{p}); err != nil {
		t.Fatal(err)
	}
	note := strings.Fields(p.Server.Command)[len(strings.Fields(p.Server.Command))-1] + ".orphan"
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	cells := Cells([]*peer.Peer{p}, Selection{Shapes: []Shape{{1, 1}}})
	wg.Go(func() { m.Measure(ctx, cells) })
	var pid int
	for pid == 0 {
		if b, err := os.ReadFile(note); err == nil {
			fmt.Sscan(string(b), &pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if gone(pid) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d, which the server had started, is still there", pid)
		}
	}
	if cells[0].State != cell.DNF {
		t.Errorf("an interrupted cell is %s", cells[0].State)
	}
}

// gone reports whether a process is no more, or a zombie that nobody reaps.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestCellsAndSelections(t *testing.T) {
	a, b := fakePeer(t, "a", "good", "good"), fakePeer(t, "b", "good", "good")
	b.Unsupported = []peer.Unsupported{{Peer: "a", Role: "server", Why: "they do not get on"}}
	w := &peer.Peer{Name: "w", Kind: peer.Kinds{peer.Wisp}, Stacks: []string{"plaintext+wisp"}, Client: &peer.Client{Command: "x", Modes: []string{"flood"}}, Server: &peer.Server{Command: "x"}}
	all := []*peer.Peer{a, b, w}
	names := func(sel Selection) []string {
		var out []string
		for _, c := range Cells(all, sel) {
			out = append(out, c.Client+":"+c.Server+string(c.State))
		}
		return out
	}
	one, wisp := []Shape{{1, 1}}, []Shape{{1, 10}}
	for _, tc := range []struct {
		sel  Selection
		want []string
	}{
		{Selection{Shapes: one}, []string{"a:a", "a:bunsupported", "b:a", "b:b"}},
		{Selection{Shapes: one, WispShapes: wisp, Modes: []string{"flood", "echo"}, Stacks: []string{"plaintext+wisp"}}, []string{"w:w", "w:wunsupported"}},
		{Selection{Shapes: one, Only: []string{"a"}}, []string{"a:a"}},
		{Selection{Shapes: one, Only: []string{"b:*"}}, []string{"b:a", "b:b"}},
		{Selection{Shapes: one, Skip: []string{"a"}}, []string{"b:b"}},
		{Selection{Shapes: one, Skip: []string{"b:a"}}, []string{"a:a", "a:bunsupported", "b:b"}},
		{Selection{Shapes: one, Noise: true, Only: []string{"b"}}, []string{"b:b", "b:b"}},
	} {
		if got := names(tc.sel); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.sel, got, tc.want)
		}
	}
}

func FuzzIperf3(f *testing.F) {
	f.Add(`{"intervals":[{"sum":{"end":1,"bytes":5}}],"end":{"sum_sent":{"bytes":5},"sum_received":{"bytes":4,"seconds":1}}}`)
	f.Add(`{"error":"unable to connect"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := iperf3Line(text); err == nil && l.Event != "result" {
			t.Errorf("%q became %+v", text, l)
		}
	})
}

// TestTarget: every byte is counted, whether it is copied, left in the kernel, or sent back.
func TestTarget(t *testing.T) {
	for _, does := range []deed{drop, discard, echo} {
		target, err := NewTarget(does)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", target.Addr())
		if err != nil {
			t.Fatal(err)
		}
		const n = 3<<20 + 1
		go func() {
			_, _ = conn.Write(make([]byte, n))
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		back, err := io.Copy(io.Discard, conn)
		if want := map[deed]int64{echo: n}[does]; err != nil || back != want {
			t.Errorf("deed %v: %d bytes came back, %v", does, back, err)
		}
		if counted, _ := target.Counted(); counted != n {
			t.Errorf("deed %v: counted %d of %d bytes", does, counted, n)
		}
		conn.Close()
		target.Close()
	}
}
