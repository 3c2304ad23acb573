//go:build unix

// The client against echo and discard servers that are not ours, socat and ncat: what it counts has to be what
// they were asked for, to the byte, and a server that does something else has to be told apart from one that
// echoes. The testees against foreign clients that misbehave.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxperf/report"
)

// tool wants a program to be there: CI installs it, a machine of somebody else's may do without.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not on this machine; .ci/install installs it", name)
		}
		t.Skipf("%s is not on this machine", name)
	}
}

// background runs a program, with all that it forks, until the test ends, and returns what ready matches in
// its stderr; "" if the program ended before.
func background(t *testing.T, ready string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-drained
		_ = cmd.Wait()
	})
	guard := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer guard.Stop()
	found := make(chan string, 1)
	go func() {
		defer close(drained)
		defer close(found)
		want := regexp.MustCompile(ready)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			if m := want.FindStringSubmatch(s.Text()); m != nil {
				select {
				case found <- m[len(m)-1]:
				default:
				}
			}
		}
	}()
	return <-found
}

// socatListen starts a socat that serves each connection with what, and returns where it listens.
func socatListen(t *testing.T, what string, flags ...string) string {
	t.Helper()
	tool(t, "socat")
	args := append([]string{"-d", "-d"}, append(flags, "TCP-LISTEN:0,bind=127.0.0.1,fork,reuseaddr,backlog=256", what)...)
	addr := background(t, `listening on AF=2 (\S+)`, "socat", args...)
	if addr == "" {
		t.Fatalf("socat %v did not listen", args)
	}
	return addr
}

// socatUnix is socatListen on a Unix socket.
func socatUnix(t *testing.T, what string, flags ...string) string {
	t.Helper()
	tool(t, "socat")
	path := filepath.Join(t.TempDir(), "s")
	args := append([]string{"-d", "-d"}, append(flags, "UNIX-LISTEN:"+path+",fork,backlog=256", what)...)
	if background(t, `listening on AF=1`, "socat", args...) == "" {
		t.Fatalf("socat %v did not listen", args)
	}
	return "unix:" + path
}

// ncatListen starts an ncat that runs a program for each connection. It does not say which port it was given,
// so a free one is chosen for it, and another when somebody was faster.
func ncatListen(t *testing.T, program string) string {
	t.Helper()
	tool(t, "ncat")
	for range 10 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().(*net.TCPAddr)
		l.Close()
		if background(t, `Listening on 127`, "ncat", "-v", "-4", "-l", "-k", "-m", "500", "--exec", program, "127.0.0.1", fmt.Sprint(addr.Port)) != "" {
			return addr.String()
		}
	}
	t.Fatal("ncat did not listen")
	return ""
}

// ncatUnix is ncatListen on a Unix socket.
func ncatUnix(t *testing.T, program string) string {
	t.Helper()
	tool(t, "ncat")
	path := filepath.Join(t.TempDir(), "s")
	if background(t, `Listening on /`, "ncat", "-v", "-l", "-k", "-m", "500", "-U", path, "--exec", program) == "" {
		t.Fatal("ncat did not listen")
	}
	return "unix:" + path
}

// clientSays runs the client to its end.
func clientSays(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin(t), "client"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("client %v did not end within %s: %s%s", args, patience, out.String(), errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestForeignEchoServers: every test that a plain echo server can serve, with counts that are known.
func TestForeignEchoServers(t *testing.T) {
	for name, listen := range map[string]func(t *testing.T) string{
		"socat-cat":      func(t *testing.T) string { return socatListen(t, "EXEC:cat") },
		"socat-pipe":     func(t *testing.T) string { return socatListen(t, "PIPE") },
		"ncat-cat":       func(t *testing.T) string { return ncatListen(t, "/bin/cat") },
		"socat-unix-cat": func(t *testing.T) string { return socatUnix(t, "EXEC:cat") },
		"ncat-unix-cat":  func(t *testing.T) string { return ncatUnix(t, "/bin/cat") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := listen(t)
			for _, tc := range []struct {
				want uint64
				args string
			}{
				{200, "--test rr -n 200"},
				{200, "--test rr -n 200 --engine net"},
				{100, "--test rr -n 100 --request 1000 --response 1000"},
				{20, "--test rr -n 20 --request 100000 --response 100000"},
				{200, "--test rr -n 200 --outstanding 4"},
				{200, "--test rr -n 200 --outstanding 4 --engine net --request 64 --response 64"},
				{50, "--test rr -n 50 --rate 500"},
				{20, "--test crr -n 20"},
				{20, "--test crr -n 20 --outstanding 4 --request 500 --response 500"},
				{20, "--test crr -n 20 --engine net"},
			} {
				r := measured(t, append(strings.Fields(tc.args), "--no-control", addr)...)
				if got := uint64(r.Latency.Corrected.Count); got != tc.want || !r.Complete || r.Protocol != "echo" {
					t.Errorf("%s: %d transactions over %s, complete %t", tc.args, got, r.Protocol, r.Complete)
				}
			}
			r := measured(t, "--no-control", "--test", "hold", "--connections", "50", "--batch", "10", addr)
			if h := r.Hold; h.Established != 50 || h.Echoed != 50 || len(h.Failures) != 0 {
				t.Errorf("hold: %+v", h)
			}
			flood := uint64(1_000_003)
			if strings.HasPrefix(name, "ncat") {
				flood = 50_003 // ncat writes to its program without reading from it: more than a pipe holds stops both
			}
			for _, n := range []uint64{1, flood} {
				r := measured(t, "--no-control", "--protocol", "echo", "-n", fmt.Sprint(n), "-P", "2", addr)
				if d := r.Directions; len(d) == 0 || d[0].Sender.Bytes != n || !echoed(r.Directions, n) {
					t.Errorf("echo of %d bytes: %+v", n, d)
				}
			}
		})
	}
}

// TestForeignDiscardServers: a flood to a server that keeps what it got. It cannot tell the client how much
// that was, but it can tell us.
func TestForeignDiscardServers(t *testing.T) {
	for name, listen := range map[string]func(t *testing.T, what string) string{
		"tcp":  func(t *testing.T, what string) string { return socatListen(t, what, "-u") },
		"unix": func(t *testing.T, what string) string { return socatUnix(t, what, "-u") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "received")
			addr := listen(t, "OPEN:"+file+",creat,append")
			due := int64(0)
			for _, tc := range []struct {
				n    uint64
				args string
			}{{1, ""}, {3_000_001, ""}, {1_000_000, "-P 3 -l 1000"}, {500_000, "-b 40M"}} {
				r := measured(t, append(strings.Fields(tc.args), "--no-control", "--protocol", "discard", "-n", fmt.Sprint(tc.n), addr)...)
				if d := r.Directions; len(d) != 1 || d[0].Sender == nil || d[0].Sender.Bytes != tc.n || d[0].Receiver != nil || d[0].MeasuredAt != "sender" {
					t.Errorf("%d bytes %s: %+v", tc.n, tc.args, d)
				}
				due += int64(tc.n)
				eventually(t, func() string {
					if info, err := os.Stat(file); err != nil || info.Size() != due {
						return fmt.Sprintf("after %s the server has %v of %d bytes, %v", tc.args, info, due, err)
					}
					return ""
				})
			}
			r := measured(t, "--no-control", "--protocol", "discard", "-t", "0.3", "-b", "80M", addr)
			due += int64(r.Directions[0].Sender.Bytes)
			eventually(t, func() string {
				if info, err := os.Stat(file); err != nil || info.Size() != due {
					return fmt.Sprintf("the server has %v of %d bytes, %v", info, due, err)
				}
				return ""
			})
		})
	}
}

// eventually waits for what is sure to come: complaint is empty when it is there.
func eventually(t *testing.T, complaint func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		said := complaint()
		if said == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
}

// TestServersThatDoNotEcho: each fault of a server has its own words and its own exit code.
func TestServersThatDoNotEcho(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	missing := "unix:" + filepath.Join(t.TempDir(), "nobody")
	for _, tc := range []struct {
		name   string
		listen func(t *testing.T) string
		args   string
		code   int
		want   string
	}{
		{"nobody", func(*testing.T) string { return nobody }, "--test rr -n 1", 3, "cannot connect"},
		{"no-socket", func(*testing.T) string { return missing }, "--test rr -n 1", 3, "no such file"},
		{"nobody-crr", func(*testing.T) string { return nobody }, "--test crr -n 1", 3, "cannot connect"},
		{"nobody-hold", func(*testing.T) string { return nobody }, "--test hold --connections 3", 1, "0 of 3 connections were established"},
		{"longer-than-an-echo", func(t *testing.T) string { return socatListen(t, "EXEC:cat") },
			"--test rr -n 5 --request 1 --response 2", 2, "--request and --response have to be equal"},
		{"longer-than-an-echo-crr", func(t *testing.T) string { return socatListen(t, "EXEC:cat") },
			"--test crr -n 5 --request 10 --response 2", 2, "--request and --response have to be equal"},
		{"open-needs-a-muxer", func(t *testing.T) string { return socatListen(t, "EXEC:cat") },
			"--test open -n 5", 2, "needs a muxer"},
		{"silent", func(t *testing.T) string { return socatListen(t, "OPEN:/dev/null,append", "-u") },
			"--test rr -n 5 --rcv-timeout 0.5", 5, "response"},
		{"silent-hold", func(t *testing.T) string { return socatListen(t, "OPEN:/dev/null,append", "-u") },
			"--test hold --connections 3 --rcv-timeout 0.5", 1, "0 of 3 connections echoed"},
		{"other-words", func(t *testing.T) string { return socatListen(t, "EXEC:yes") },
			"--test rr -n 5", 6, "is the other end an echo server?"},
		{"ends-early", func(t *testing.T) string { return socatListen(t, "EXEC:'dd bs=10 count=4 status=none'") },
			"--test rr -n 50 --request 10 --response 10", 1, "response"},
		{"ends-early-echo", func(t *testing.T) string { return socatListen(t, "EXEC:'dd bs=10 count=4 status=none'") },
			"--protocol echo -n 1M", 1, "came back"},
		{"hangs-up", func(t *testing.T) string { return socatListen(t, "EXEC:true") },
			"--test rr -n 5", 1, "re"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, said, code := clientSays(t, append(strings.Fields(tc.args), "--no-control", tc.listen(t))...)
			if code != tc.code || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, want %d, and %q in:\n%s%s", code, tc.code, tc.want, said, out)
			}
			if n := strings.Count(said, "client:"); n != 1 {
				t.Errorf("%d lines of complaint:\n%s", n, said)
			}
		})
	}
}

// TestForeignClientsThatMisbehave: a client that sends and never reads, one that is killed in the middle, and
// one that closes its half first. The testee goes on with the others.
func TestForeignClientsThatMisbehave(t *testing.T) {
	tool(t, "socat")
	for _, engine := range []string{"auto", "net"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "s")
			startPeer(t, filepath.Join(bin(t), "server"), "-p", "0", "-B", "127.0.0.1", "--json=peer", "--engine", engine, "--testee", "unix:"+path)
			background(t, `starting data transfer`, "socat", "-d", "-d", "-u", "OPEN:/dev/zero", "UNIX-CONNECT:"+path)
			killed := exec.Command("socat", "-u", "OPEN:/dev/zero", "UNIX-CONNECT:"+path)
			if err := killed.Start(); err != nil {
				t.Fatal(err)
			}
			r := measured(t, "--no-control", "--test", "rr", "-n", "500", "unix:"+path)
			if r.Latency.Corrected.Count != 500 {
				t.Errorf("beside a deaf client %d of 500 transactions", r.Latency.Corrected.Count)
			}
			_ = killed.Process.Kill()
			_ = killed.Wait()
			half := exec.Command("socat", "-t60", "-", "UNIX-CONNECT:"+path)
			want := strings.Repeat("0123456789", 100_000)
			half.Stdin = strings.NewReader(want)
			var got bytes.Buffer
			half.Stdout = io.Writer(&got)
			if err := half.Run(); err != nil || got.String() != want {
				t.Errorf("%d of %d bytes came back to a client that had closed its half, %v", got.Len(), len(want), err)
			}
			r = measured(t, "--no-control", "--test", "crr", "-n", "50", "unix:"+path)
			if r.Latency.Corrected.Count != 50 {
				t.Errorf("%d of 50 transactions in the end", r.Latency.Corrected.Count)
			}
		})
	}
}

// echoed reports whether all bytes came back, as the row of what was received.
func echoed(all []report.Direction, n uint64) bool {
	for _, d := range all {
		if d.Receiver != nil && d.Receiver.Bytes == n {
			return true
		}
	}
	return false
}

// TestForeignEchoBehindWisp: the same servers as a target of our own Wisp server, where a stream is a connection
// to them.
func TestForeignEchoBehindWisp(t *testing.T) {
	target := socatListen(t, "EXEC:cat")
	server := startPeer(t, filepath.Join(bin(t), "server"), "-p", "0", "-B", "127.0.0.1", "--json=peer", "--wisp-allow", target)
	addr := "ws://" + hostPort(t, server.address) + "/"
	for _, tc := range []struct {
		want int64
		args string
	}{
		{100, "--test rr -n 100 --request 300 --response 300"},
		{100, "--test rr -n 100 --outstanding 4"},
		{20, "--test open -n 20"},
		{10, "--test crr -n 10"},
	} {
		r := measured(t, append(strings.Fields(tc.args), addr, "--target", target)...)
		if got := r.Latency.Corrected.Count; got != tc.want || !r.Complete {
			t.Errorf("%s: %d transactions, complete %t", tc.args, got, r.Complete)
		}
	}
	r := measured(t, "--test", "hold", "--hold-streams", "-P", "30", addr, "--target", target)
	if h := r.Hold; h.Established != 30 || h.Echoed != 30 {
		t.Errorf("hold: %+v", h)
	}
	if r := measured(t, "--protocol", "echo", "-n", "300007", addr, "--target", target); !echoed(r.Directions, 300_007) || r.Directions[0].Sender.Bytes != 300_007 {
		t.Errorf("echo: %+v", r.Directions)
	}
	_, said, code := clientSays(t, "--test", "rr", "-n", "5", "--response", "2", addr, "--target", target)
	if code != 2 || !strings.Contains(said, "--request and --response have to be equal") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
