// What the client refuses, and how it fails: the words, the exit code, nothing on stdout, one line on stderr.

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"muxperf/protocol"
	"muxperf/report"
	"muxperf/testee"
)

// TestRefusals needs no server: nothing gets so far.
func TestRefusals(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "no address"},
		{"--no-control --bidir host", 127, "discard/1.0.0 cannot send both ways; a muxperf server can: --protocol muxperf"},
		{"--no-control -R host", 127, "discard/1.0.0 cannot send from the server"},
		{"--no-control --verify host", 127, "discard/1.0.0 cannot verify the payload at the receiver"},
		{"--no-control --protocol echo -R host", 127, "echo/1.0.0 cannot send from the server"},
		{"--no-control --test open host", 2, "--test open needs a muxer"},
		{"--no-control --test hold --hold-streams host", 2, "--hold-streams needs a muxer"},
		{"--confidence 95 host", 2, "--confidence 95: want LEVEL,WIDTH in percent, such as 95,5"},
		{"--token-file " + missing + " host", 2, "reading the token"},
		{"--wisp-password-file " + missing + " ws://host/", 2, "reading the Wisp credentials"},
		{"--wisp-payload 2M ws://host/", 2, "--wisp-payload 2097152: want at most 1M"},
		{"--logfile " + missing + "/log host", 2, "opening the log file"},
		{"--affinity many host", 2, "--affinity many"},
		{"--dscp 99 host", 2, "dscp"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			out, said, code := says(strings.Fields(tc.args)...)
			if code != tc.code || !strings.HasPrefix(said, "client: ") || !strings.Contains(said, tc.want) || strings.Count(said, "\n") != 1 {
				t.Errorf("exit code %d, want %d, and one line with %q:\n%s", code, tc.code, tc.want, said)
			}
			if out != "" {
				t.Errorf("stdout has %q", out)
			}
		})
	}
}

// TestForeignCan: what each protocol without a control exchange cannot do.
func TestForeignCan(t *testing.T) {
	for _, tc := range []struct {
		protocol, args, want string // "" can
	}{
		{protocol.Discard, "", ""},
		{protocol.Discard, "-n 5 -P 3", ""},
		{protocol.Echo, "", ""},
		{protocol.Echo, "-R", "send from the server"},
		{protocol.Perf100, "-R", ""},
		{protocol.Perf100, "--bidir", "send both ways"},
		{protocol.Perf100, "--verify", "verify"},
		{protocol.Perf010, "-R", "send from the server"},
		{protocol.Perf100, "--perf-dialect", "give -n"},
		{protocol.Perf100, "--perf-dialect -n 5", ""},
		{protocol.Perf010, "--perf-dialect", ""},
	} {
		o, err := parsed(append(strings.Fields(tc.args), "host")...)
		if err != nil {
			t.Fatal(err)
		}
		err = (&runner{o: o}).foreignCan(tc.protocol)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.protocol, tc.args, err, tc.want)
		}
		var e *report.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%s %s: a %T", tc.protocol, tc.args, err)
		}
	}
}

func TestProtocolsToTry(t *testing.T) {
	control, one, zero := protocol.Control, protocol.Perf100, protocol.Perf010
	for _, tc := range []struct{ args, want string }{
		{"host", control + " " + one + " " + zero},
		{"--bidir host", control},
		{"--verify host", control},
		{"ws://host/", control},
		{"--target h:9 ws://host/", protocol.Discard},
		{"--target h:9 --protocol echo ws://host/", protocol.Echo},
		{"--protocol muxperf host", control},
		{"--protocol " + zero + " host", zero},
		{"--protocol echo host", protocol.Echo},
		{"--protocol discard host", protocol.Discard},
	} {
		o, err := parsed(strings.Fields(tc.args)...)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join((&runner{o: o}).protocols(), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.args, got, tc.want)
		}
	}
}

func TestSplitTarget(t *testing.T) {
	for _, tc := range []struct {
		text, host string
		port       int // 0 is refused
	}{
		{"127.0.0.1:9", "127.0.0.1", 9}, {"[::1]:65535", "::1", 65535}, {"host:1", "host", 1},
		{"", "", 0}, {"host", "", 0}, {"host:", "", 0}, {"host:0", "", 0}, {"host:65536", "", 0}, {"host:http", "", 0}, {"::1:9", "", 0}, {"host:-1", "", 0},
	} {
		host, port, err := splitTarget(tc.text)
		if host != tc.host || port != tc.port || (err == nil) != (tc.port > 0) {
			t.Errorf("%q: %q %d, %v", tc.text, host, port, err)
		}
	}
}

// TestBareServers: against a plain echo server the counts are exact; against others the failure has its
// exit code, and its reason is in the JSON too.
func TestBareServers(t *testing.T) {
	echo, discard := serveTestee(t, "127.0.0.1:0"), serveTestee(t, "discard=127.0.0.1:0")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	chargen := serveTestee(t, "chargen=127.0.0.1:0")
	for _, tc := range []struct {
		args string
		code int
		kind report.Kind
		want string
	}{
		{"--test rr -n 7 " + echo, 0, "", ""},
		{"--test rr -n 7 --outstanding 4 " + echo, 0, "", ""},
		{"--test crr -n 7 " + echo, 0, "", ""},
		{"--protocol echo -n 7 " + echo, 0, "", ""},
		{"--test rr -n 7 --response 2 " + echo, 2, report.KindUsage, "an echo server answers with what it got"},
		{"--test rr -n 7 " + nobody, 3, report.KindConnect, "cannot connect to " + nobody},
		{"--test crr -n 7 " + nobody, 3, report.KindConnect, "is a server listening there?"},
		{"-n 7 " + nobody, 3, report.KindConnect, "cannot connect"},
		{"--test rr -n 7 --rcv-timeout 0.2 " + discard, 5, report.KindStalled, "reading a response"},
		{"--protocol echo -n 7 --rcv-timeout 0.2 " + discard, 5, report.KindStalled, "--rcv-timeout allows longer silences"},
		{"--test rr -n 7 " + chargen, 6, report.KindVerify, "is the other end an echo server?"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			out, said, code := says(append([]string{"-J", "--no-control"}, strings.Fields(tc.args)...)...)
			var res report.Result
			if err := json.Unmarshal([]byte(out), &res); err != nil {
				t.Fatalf("%v: %s%s", err, out, said)
			}
			kind := report.Kind("")
			if res.Error != nil {
				kind = res.Error.Kind
			}
			if code != tc.code || kind != tc.kind || !strings.Contains(said, tc.want) || res.Complete != (code == 0) {
				t.Errorf("exit code %d and kind %q, complete %t, want %d, %q and %q in:\n%s", code, kind, res.Complete, tc.code, tc.kind, tc.want, said)
			}
			if code == 0 && count(&res) != 7 {
				t.Errorf("%d were counted, want 7", count(&res))
			}
		})
	}
}

// count is how many transactions, or bytes, a result is of.
func count(r *report.Result) int64 {
	if r.Latency != nil {
		return r.Latency.Corrected.Count
	}
	return int64(r.Directions[0].Sender.Bytes)
}

// TestAServerThatEndsEarly: a few answers and then the end of data: what was measured is shown, and that it
// is not whole.
func TestAServerThatEndsEarly(t *testing.T) {
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
			io.CopyN(conn, conn, 5)
			conn.Close()
		}
	}()
	for _, engine := range []string{"auto", "net"} {
		out, said, code := says("--no-control", "--test", "rr", "-n", "50", "--engine", engine, "-J", l.Addr().String())
		var res report.Result
		if err := json.Unmarshal([]byte(out), &res); err != nil || res.Latency == nil {
			t.Fatalf("%s: %v: %s", engine, err, out)
		}
		if code != 1 || res.Complete || res.Latency.Corrected.Count != 5 || strings.Count(said, "\n") < 1 {
			t.Errorf("%s: exit code %d after %d answers of 5, complete %t:\n%s", engine, code, res.Latency.Corrected.Count, res.Complete, said)
		}
	}
}

// TestHoldForm: which form of holding is planned for, and what of.
func TestHoldForm(t *testing.T) {
	for address, want := range map[string]testee.Origin{
		"127.0.0.1:1": testee.FromLoopback, "127.9.8.7:1": testee.FromLoopback, "localhost:1": testee.FromLoopback,
		"[::1]:1": testee.FromHost, "192.0.2.1:1": testee.FromHost, "host:1": testee.FromHost, "unix:/s": testee.FromPath,
	} {
		o, err := parsed("--test", "hold", "--no-control", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&runner{o: o}).origin(); got != want {
			t.Errorf("%s: connections come from %d", address, got)
		}
	}
}
