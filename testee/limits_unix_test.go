//go:build unix

// A testee whose descriptor table is full: it rests, does not spin, and goes on when there is room. The limit is a
// process's, so the testee is in a child of the test.

package testee

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	childVariable = "TESTEE_FEW_FILES"
	fewFiles      = 40
)

// child reports whether this process is the one with few files; if so, it has served.
func child() bool {
	engine, ok := os.LookupEnv(childVariable)
	if !ok {
		return false
	}
	if err := serveFewFiles(engine); err != nil {
		fmt.Println("error", err)
	}
	return true
}

// An attempts is a log that counts how often accepting has failed: each time is one line.
type attempts struct {
	slog.Handler
	n *atomic.Int64
}

func (a attempts) Enabled(context.Context, slog.Level) bool { return true }

func (a attempts) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "cannot accept") {
		a.n.Add(1)
	}
	return nil
}

// serveFewFiles serves, says where, and answers each line of its input with the processor time in milliseconds
// and the failed attempts so far.
func serveFewFiles(engine string) error {
	lim := syscall.Rlimit{Cur: fewFiles, Max: fewFiles}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return err
	}
	s, err := ParseSpec("127.0.0.1:0")
	if err != nil {
		return err
	}
	var failed atomic.Int64
	te, err := Listen(context.Background(), s, Config{Engine: engine, Log: slog.New(attempts{slog.DiscardHandler, &failed})})
	if err != nil {
		return err
	}
	fmt.Println(te.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var ru syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
			fmt.Println(time.Duration(ru.Utime.Nano()+ru.Stime.Nano()).Milliseconds(), failed.Load())
		}
		cancel()
	}()
	return te.Serve(ctx)
}

// A limited is the child.
type limited struct {
	addr string
	in   io.WriteCloser
	out  *bufio.Reader
}

func startLimited(t *testing.T, engine string) *limited {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+engine)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child ended with %v", err)
		}
		guard.Stop()
	})
	l := &limited{in: in, out: bufio.NewReader(out)}
	if _, err := fmt.Fscanln(l.out, &l.addr); err != nil || l.addr == "error" {
		t.Fatalf("the child said %q, %v", l.addr, err)
	}
	return l
}

// usage is the child's processor time and its failed attempts.
func (l *limited) usage(t *testing.T) (cpu time.Duration, failed int) {
	t.Helper()
	fmt.Fprintln(l.in, "usage")
	var ms int
	if _, err := fmt.Fscanln(l.out, &ms, &failed); err != nil {
		t.Fatalf("the child's usage: %v", err)
	}
	return time.Duration(ms) * time.Millisecond, failed
}

func TestFileLimit(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		l := startLimited(t, engine)
		var conns []net.Conn
		for range fewFiles + 20 {
			conn, err := net.Dial("tcp", l.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns = append(conns, conn)
		}
		last := conns[len(conns)-1]
		last.Write([]byte("x"))
		for began := time.Now(); ; time.Sleep(time.Millisecond) { // until the table is full
			if _, failed := l.usage(t); failed > 0 {
				break
			}
			if time.Since(began) > patience {
				t.Fatalf("%d connections were taken with %d descriptors", len(conns), fewFiles)
			}
		}

		began := time.Now()
		cpu, failed := l.usage(t)
		last.SetReadDeadline(time.Now().Add(1500 * time.Millisecond))
		if _, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d connections were served with %d descriptors: %v", len(conns), fewFiles, err)
		}
		cpu2, failed2 := l.usage(t)
		elapsed := time.Since(began)
		if most := int(elapsed/pauseAccept) + 2; failed2-failed > most || failed2 == failed {
			t.Errorf("%d attempts in %s, want 1 to %d", failed2-failed, elapsed, most)
		}
		if cpu2-cpu > elapsed/2 {
			t.Errorf("%s of processor time in %s: it spins", cpu2-cpu, elapsed)
		}
		// Those that are served go on meanwhile.
		first := conns[0]
		first.SetDeadline(time.Now().Add(patience))
		first.Write([]byte("y"))
		if _, err := first.Read(make([]byte, 1)); err != nil {
			t.Errorf("with the table full an old connection is not served: %v", err)
		}
		for _, c := range conns[:fewFiles] {
			c.Close()
		}
		last.SetReadDeadline(time.Now().Add(patience))
		if _, err := last.Read(make([]byte, 1)); err != nil {
			t.Errorf("after the others had gone the last one was not served: %v", err)
		}
	})
}
