//go:build linux

// The server: one process with everything on, and what /proc and a dump of its goroutines say about it.

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An address is where to dial or listen.
type address struct{ network, text string }

func (a address) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, a.network, a.text)
}

// String is the address as the client's command line has it.
func (a address) String() string {
	if a.network == "unix" {
		return "unix:" + a.text
	}
	return a.text
}

// A server is the process that is soaked.
type server struct {
	cmd    *exec.Cmd
	log    string // file of its stderr
	places map[place]address
	ended  chan struct{}
	once   sync.Once
}

// A usage is what a process holds.
type usage struct {
	files int
	rss   int64 // bytes
}

// startServer starts the program of dir and waits until it listens.
func startServer(ctx context.Context, dir, name string) (*server, error) {
	base := filepath.Join(dir, name)
	out, err := os.Create(base + ".out")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	log, err := os.Create(base + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &server{log: log.Name(), ended: make(chan struct{}), places: map[place]address{
		mainUnix: {"unix", base + ".sock"}, echoUnix: {"unix", base + ".echo"},
	}}
	s.cmd = exec.Command(filepath.Join(dir, "server"), "--listen", "127.0.0.1:0", "--listen", "unix:"+base+".sock",
		"--testee", "echo=127.0.0.1:0", "--testee", "discard=127.0.0.1:0", "--testee", "echo=unix:"+base+".echo",
		"--wisp-allow", "127.0.0.1:*", "--idle-timeout", "20")
	s.cmd.Stdout, s.cmd.Stderr = out, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is ours to answer
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is in its state
		close(s.ended)
	}()
	if err := s.findPlaces(ctx, out.Name()); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// findPlaces reads the addresses of the free ports from what the server announces.
func (s *server) findPlaces(ctx context.Context, file string) error {
	announced := map[place]*regexp.Regexp{
		mainTCP:    regexp.MustCompile(`(?m)^Listening on (127.*)$`),
		echoTCP:    regexp.MustCompile(`(?m)^Testee: echo on (127.*)$`),
		discardTCP: regexp.MustCompile(`(?m)^Testee: discard on (127.*)$`),
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ended:
			return errors.New("the server has not started: " + s.end())
		case <-time.After(20 * time.Millisecond):
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for p, re := range announced {
			if m := re.FindSubmatch(b); m != nil {
				s.places[p] = address{"tcp4", string(m[1])}
			}
		}
		if strings.Contains(string(b), "Listening on unix:") && len(s.places) == 2+len(announced) {
			return nil
		}
	}
	return errors.New("the server has not said where it listens")
}

// usage reads what the server holds now; zero once it has ended.
func (s *server) usage() usage {
	proc := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	var u usage
	if files, err := os.ReadDir(proc + "fd"); err == nil {
		u.files = len(files)
	}
	b, err := os.ReadFile(proc + "status")
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			u.rss = kib << 10
		}
	}
	return u
}

// end is how the server ended, and the end of its log.
func (s *server) end() string {
	return s.cmd.ProcessState.String() + "\n" + lastLines(s.text(), 40)
}

func (s *server) text() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (s *server) kill() {
	s.once.Do(func() { _ = s.cmd.Process.Kill() })
	<-s.ended
}

// quit lets the server print its goroutines and end, and returns them by what they do.
func (s *server) quit() (map[string]int, error) {
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return nil, fmt.Errorf("asking for the goroutines: %w", err)
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		return nil, errors.New("the server did not print its goroutines")
	}
	_, dump, ok := strings.Cut(s.text(), "SIGQUIT: quit")
	if !ok {
		return nil, errors.New("there is no dump of goroutines in the server's log")
	}
	return goroutines(dump), nil
}

// goroutines counts those of a dump by the innermost function of ours and by who created them. The
// runtime's own come and go.
func goroutines(dump string) map[string]int {
	ours := regexp.MustCompile(`(?m)^((?:main|muxperf/\S*?)\.\S+)\(`)
	innermost := regexp.MustCompile(`(?m)^([^\s(]\S*)\(`)
	created := regexp.MustCompile(`(?m)^created by (\S+)`)
	count := map[string]int{}
	for block := range strings.SplitSeq(dump, "\n\n") {
		if !strings.HasPrefix(block, "goroutine ") || strings.HasPrefix(block, "goroutine 0 ") {
			continue
		}
		by := "the start"
		if m := created.FindStringSubmatch(block); m != nil {
			by = m[1]
		}
		if strings.HasPrefix(by, "runtime.") {
			continue
		}
		in := "?"
		if m := ours.FindStringSubmatch(block); m != nil {
			in = m[1]
		} else if m := innermost.FindStringSubmatch(block); m != nil {
			in = m[1]
		}
		count[in+", created by "+by]++
	}
	return count
}

// lastLines is the end of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
