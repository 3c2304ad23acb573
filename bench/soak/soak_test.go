//go:build linux

package main

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muxperf/measure"
	"muxperf/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The command itself, for a few seconds.
func TestSoak(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // nothing stays if the test is cut short
	var out bytes.Buffer
	c := config{duration: 4 * time.Second, seed: 1, clients: 4, step: -1, hasty: true}
	if err := run(t.Context(), c, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"seed 1", "all ", "descriptors:", "RSS:", "goroutines at rest"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, out.String())
		}
	}
}

// A seed and a number make a step, whatever else is planned, and the plan reaches everything.
func TestPlan(t *testing.T) {
	seen := map[string]bool{}
	for n := range 5000 {
		s := plan(7, n)
		if !reflect.DeepEqual(s, plan(7, n)) {
			t.Fatalf("step %d differs from itself: %s", n, s)
		}
		seen[s.test], seen[s.stack], seen[string(s.place)], seen[s.fault.name] = true, true, true, true
		if s.test == hostileTest {
			continue
		}
		if s.limit() < patience || s.length <= 0 {
			t.Errorf("%s: no time to run in", s)
		}
		if s.fault.name == faultSlow && s.place != mainTCP && s.place != echoTCP && s.place != discardTCP {
			t.Errorf("%s: the link is TCP's", s)
		}
	}
	for _, want := range []string{"flood", "perf", "rr", "crr", "open", "hold", "target", hostileTest,
		"noise+none", "noise+yamux", "noise+wisp", "plaintext+none", "plaintext+yamux", "plaintext+wisp", "bare",
		string(mainTCP), string(mainUnix), string(echoTCP), string(echoUnix), string(discardTCP),
		faultNone, faultCut, faultReset, faultStall, faultFreeze, faultFlip, faultSlow, faultKill, faultStop, faultInt,
		hostileScan, hostileGarbage, hostileHalf, hostileSilent, hostileHTTP, hostileUpgrade} {
		if !seen[want] {
			t.Errorf("no step of 5000 has %q", want)
		}
	}
	if reflect.DeepEqual(plan(7, 0), plan(8, 0)) && reflect.DeepEqual(plan(7, 1), plan(8, 1)) {
		t.Error("two seeds make the same plan")
	}
}

// side is one end's view of so many bytes on one stream.
func side(n uint64) *report.Side {
	return &report.Side{Totals: measure.Totals{Bytes: n, Streams: []measure.StreamTotal{{Bytes: n}}}}
}

// upload is a complete result of that many bytes at both ends.
func upload(sent, received uint64) *report.Result {
	return &report.Result{Complete: true, Directions: []report.Direction{{Name: "upload", Sender: side(sent), Receiver: side(received)}}}
}

// Every check must be able to fail.
func TestCheck(t *testing.T) {
	up := want{up: true, bothEnds: true}
	broken := &report.Result{Error: &report.Error{Kind: report.KindStalled}}
	sums := upload(5, 5)
	sums.Directions[0].Receiver.Streams[0].Bytes = 4
	oneEnd := upload(5, 5)
	oneEnd.Directions[0].Receiver = nil
	for _, c := range []struct {
		name  string
		want  want
		fault string
		o     outcome
		say   string // "" for nothing wrong
	}{
		{"right", up, faultNone, outcome{result: upload(5, 5)}, ""},
		{"one byte is lost", up, faultNone, outcome{result: upload(5, 4)}, "5 bytes were sent and 4 received"},
		{"lost in spite of a fault", up, faultCut, outcome{result: upload(5, 4)}, "5 bytes were sent and 4 received"},
		{"not exactly -n", want{up: true, bothEnds: true, bytes: 6}, faultNone, outcome{result: upload(5, 5)}, "want 6"},
		{"not verified", want{up: true, bothEnds: true, verify: true}, faultNone, outcome{result: upload(5, 5)}, "not verified"},
		{"one end only", up, faultNone, outcome{result: oneEnd}, "one end has no figures"},
		{"the streams do not add up", up, faultNone, outcome{result: sums}, "4 in the streams"},
		{"a direction too few", want{up: true, down: true, bothEnds: true}, faultNone, outcome{result: upload(5, 5)}, "directions"},
		{"transactions", want{count: 3}, faultNone, outcome{result: &report.Result{Complete: true, Latency: &report.Latency{}}}, "want 3 transactions"},
		{"held", want{hold: 3}, faultNone, outcome{result: &report.Result{Complete: true, Hold: &report.HoldResult{Established: 3, Echoed: 2}}}, "want 3 held"},
		{"failed without a fault", up, faultNone, outcome{exit: 5, result: broken}, "exit code 5, want 0"},
		{"failed because of one", up, faultReset, outcome{exit: 5, result: broken}, ""},
		{"the codes differ", up, faultReset, outcome{exit: 1, result: broken}, "the result's kind"},
		{"failed, but complete", up, faultReset, outcome{exit: 1, result: upload(5, 5)}, "with a complete result"},
		{"succeeded, but incomplete", up, faultReset, outcome{result: broken}, "incomplete"},
		{"usage", up, faultReset, outcome{exit: 2, result: &report.Result{Error: &report.Error{Kind: report.KindUsage}}}, "no sense"},
		{"hung", up, faultReset, outcome{hung: true, exit: 2}, "hung"},
		{"killed by us", up, faultKill, outcome{exit: -1}, ""},
		{"killed by itself", up, faultNone, outcome{exit: -1, signal: "segmentation fault"}, "segmentation fault"},
		{"a race", up, faultNone, outcome{result: upload(5, 5), stderr: "WARNING: DATA RACE"}, "DATA RACE"},
		{"orphans", up, faultKill, outcome{exit: -1, orphans: true}, "left processes behind"},
		{"a change unnoticed", up, faultFlip, outcome{result: upload(5, 5), struck: true, later: noticed + 1}, "a bit was changed"},
		{"a change at the very end", up, faultFlip, outcome{result: upload(5, 5), struck: true, later: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(check(&step{want: c.want, fault: fault{name: c.fault}, sealed: true}, &c.o), "; ")
			if c.say == "" && got != "" || !strings.Contains(got, c.say) {
				t.Errorf("got %q, want %q", got, c.say)
			}
		})
	}
}

// The proxy does what its name says, and leaves the rest alone.
func TestProxy(t *testing.T) {
	for _, c := range []struct {
		fault fault
		send  string
		want  string // what arrives before the end
	}{
		{fault{name: faultFlip, offset: 2, bit: 0}, "aaaa", "aa`a"},
		{fault{name: faultFlip, offset: 2, connection: 1}, "aaaa", "aaaa"},
		{fault{name: faultFlip, offset: 2, down: true}, "aaaa", "aaaa"},
		{fault{name: faultCut, offset: 3}, "aaaa", "aaa"},
		{fault{name: faultStall, offset: 3, pause: 20 * time.Millisecond}, "aaaa", "aaaa"},
		{fault{name: faultReset, offset: 0}, "aaaa", ""},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			arrived := make(chan string)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					arrived <- err.Error()
					return
				}
				defer conn.Close()
				var got bytes.Buffer
				_, _ = got.ReadFrom(conn) // a reset is an end as well
				arrived <- got.String()
			}()
			p, err := startProxy(t.Context(), address{"tcp4", "127.0.0.1:0"}, address{"tcp4", l.Addr().String()}, c.fault)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			conn, err := net.Dial("tcp4", p.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(c.send)); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			if got := <-arrived; got != c.want {
				t.Errorf("%q arrived, want %q", got, c.want)
			}
		})
	}
}

// A dump is counted by what was left behind, without the runtime's own.
func TestGoroutines(t *testing.T) {
	got := goroutines(`
PC=0x48fa21 m=0 sigcode=0

goroutine 0 gp=0xbe3420 m=0 mp=0xbe4420 [idle]:
runtime.futex(0xbe4578)

goroutine 1 gp=0x1 m=nil [chan receive]:
runtime.gopark(0x7fe1c8a37108?)
	/usr/local/go/src/runtime/proc.go:462 +0xce
main.(*service).run(0x1bd70ef92008, {0x8d0b30})
	/src/server/run.go:86 +0x2d6
main.main()

goroutine 7 gp=0x1 m=nil [IO wait]:
net.(*netFD).Read(0x1)
muxperf/transport/noise.(*Conn).Read(0x1)
created by main.(*service).admit in goroutine 9
	/src/server/serve.go:67 +0x105

goroutine 8 gp=0x1 m=nil [IO wait]:
muxperf/transport/noise.(*Conn).Read(0x1)
created by main.(*service).admit in goroutine 9

goroutine 2 gp=0x1 m=nil [force gc (idle)]:
runtime.gopark(0x0?)
created by runtime.init.7 in goroutine 1

rax    0xca
`)
	want := map[string]int{
		"main.(*service).run, created by the start":                              1,
		"muxperf/transport/noise.(*Conn).Read, created by main.(*service).admit": 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A client that does not end is ended, and says where it was.
func TestWaitHung(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if !wait(context.Background(), ended, 10*time.Millisecond, cmd) {
		t.Error("a hung process was not noticed")
	}
}

// A standstill excuses what it overlaps with, and nothing else.
func TestPulse(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var p pulse
	p.beat(at(10), at(11)) // late, but not so late
	p.beat(at(20), at(28))
	for _, c := range []struct{ from, to, want int }{{9, 12, 0}, {0, 19, 0}, {19, 21, 8}, {22, 23, 8}, {27, 40, 8}, {28, 40, 0}} {
		if got := p.stood(at(c.from), at(c.to)); got != time.Duration(c.want)*time.Second {
			t.Errorf("%d to %d: stood still for %s, want %d s", c.from, c.to, got, c.want)
		}
	}
}

// A hostile connection that a server leaves open is noticed; here the server is one that closes.
func TestHostile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for _, name := range []string{hostileScan, hostileGarbage, hostileHalf, hostileSilent, hostileUpgrade} {
		if err := beHostile(t.Context(), address{"unix", path}, fault{name: name, seed: 3}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := beHostile(t.Context(), address{"unix", path}, fault{name: hostileHTTP}); err == nil {
		t.Error("a GET without an answer was taken")
	}
}
