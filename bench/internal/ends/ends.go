// Package ends runs the real programs for benchmarks: a server that says when it is ready, and clients that
// run to their end, each with the peak of its memory. The benchmarks measure what a user would run, so
// nothing here reaches into the programs.
package ends

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"muxperf/report"
)

const (
	readyTimeout = time.Minute      // for a server to answer; a hang guard
	stopGrace    = 10 * time.Second // between SIGTERM and SIGKILL
	samples      = 20 * time.Millisecond
)

// Build builds packages of the module that dir is in, and puts the programs into out.
func Build(ctx context.Context, dir, out string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", out + "/"}, packages...)...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", strings.Join(packages, " "), err, bytes.TrimSpace(text))
	}
	return nil
}

// A Server is a server's process.
type Server struct {
	Address string // as its ready line has it
	cmd     *exec.Cmd
	ended   chan struct{}
}

// Start starts a server that prints a JSON line with "event":"ready" and its address on stdout, and waits for
// it. The server ends with Stop, or with ctx.
func Start(ctx context.Context, name string, args ...string) (*Server, error) {
	cmd := command(ctx, name, args)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	s := &Server{cmd: cmd, ended: make(chan struct{})}
	ready := make(chan string, 1)
	go func() {
		announce(out, ready)
		_ = cmd.Wait() // it is ended by a signal
		close(s.ended)
	}()
	select {
	case s.Address = <-ready:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("%s has not started: %s", name, bytes.TrimSpace(log.Bytes()))
	case <-time.After(readyTimeout):
		s.Stop()
		return nil, fmt.Errorf("%s was not ready within %s", name, readyTimeout)
	}
}

// announce passes the ready line on, and reads whatever else there is.
func announce(out io.Reader, ready chan<- string) {
	for s := bufio.NewScanner(out); s.Scan(); {
		var line struct{ Event, Address string }
		if json.Unmarshal(s.Bytes(), &line) == nil && line.Event == "ready" {
			ready <- line.Address
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
}

// command makes a process that is asked to end when ctx does.
func command(ctx context.Context, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// Stop ends the server and waits for it.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		return
	case <-time.After(stopGrace):
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Memory is what the server's process holds now and has held at most.
func (s *Server) Memory() Memory { return memoryOf(s.cmd.Process.Pid) }

// HostPort is the address as host:port, for clients without multiaddrs.
func (s *Server) HostPort() string {
	var host, port string
	part := strings.Split(s.Address, "/")
	for i := 1; i+1 < len(part); i += 2 {
		switch part[i] {
		case "ip4", "ip6":
			host = part[i+1]
		case "tcp":
			port = part[i+1]
		}
	}
	if port == "" {
		return s.Address
	}
	return host + ":" + port
}

// Run runs a program to its end, and returns what it printed on stdout and its peak of memory. What it said on
// stderr is in the error.
func Run(ctx context.Context, name string, args ...string) ([]byte, Memory, error) {
	cmd := command(ctx, name, args)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		return nil, Memory{}, fmt.Errorf("starting %s: %w", name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var peak Memory
	tick := time.NewTicker(samples)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(log.Bytes()))
			}
			return out.Bytes(), peak, err
		case <-tick.C: // the high-water mark only grows: the last look is the one that counts
			if m := memoryOf(cmd.Process.Pid); m.Peak > 0 {
				peak = m
			}
		}
	}
}

// Client runs our client with -J and decodes its result. A run that failed is an error with the result's own
// reason.
func Client(ctx context.Context, program string, args ...string) (*report.Result, Memory, error) {
	out, peak, err := Run(ctx, program, append([]string{"-J"}, args...)...)
	r := &report.Result{}
	if jerr := json.Unmarshal(out, r); jerr != nil {
		return nil, peak, errors.Join(err, fmt.Errorf("the client's JSON: %w", jerr))
	}
	if r.Error != nil {
		return nil, peak, r.Error
	}
	return r, peak, err
}

// Memory is a process's resident set, in bytes; zero where the system does not tell.
type Memory struct{ Now, Peak int64 }

func memoryOf(pid int) Memory {
	var m Memory
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		switch {
		case strings.HasPrefix(line, "VmRSS:"):
			_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &kib)
			m.Now = kib << 10
		case strings.HasPrefix(line, "VmHWM:"):
			_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &kib)
			m.Peak = kib << 10
		}
	}
	return m
}
