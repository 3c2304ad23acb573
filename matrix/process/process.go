// Package process runs the peers' programs: each in a process group of its own, under a supervisor that
// ends the whole group when the program is done, when it is told to, and when the matrix itself is gone.
//
// The supervisor is this binary again, started with Supervise as its first argument. It holds the
// reading end of a pipe whose writing end only the matrix has: when the matrix dies, by whatever signal,
// the pipe ends, and the supervisor kills the group. Nothing has to be cleaned up afterwards.
package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Supervise is the first argument that makes this binary a supervisor.
const Supervise = "--supervise"

// A Process is a program under way.
type Process struct {
	cmd  *exec.Cmd
	out  output
	hold io.Closer // the writing end of the pipe: closing it ends the group
	log  *os.File
	done chan struct{}
	err  error
	once sync.Once
}

// A Command is what to start.
type Command struct {
	Line string // for the shell
	Dir  string
	Log  string // file for its stdout and stderr, appended to
}

// maxLine bounds a line of a peer's output.
const maxLine = 4 << 20

// Start starts a command. Its stdout goes to Next and to the log, its stderr to the log.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	fmt.Fprintf(log, "$ %s\n", c.Line)
	exe, err := os.Executable()
	if err != nil {
		log.Close()
		return nil, err
	}
	cmd := exec.Command(exe, Supervise, c.Line)
	cmd.Dir, cmd.Stderr = c.Dir, log
	isolate(cmd)
	hold, err := cmd.StdinPipe()
	if err != nil {
		log.Close()
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		log.Close()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("starting %q: %w", c.Line, err)
	}
	p := &Process{cmd: cmd, hold: hold, log: log, out: output{more: make(chan struct{}, 1)}, done: make(chan struct{})}
	go p.read(stdout)
	return p, nil
}

// read copies stdout to the log and to Next, then waits for the end.
func (p *Process) read(stdout io.Reader) {
	s := bufio.NewScanner(stdout)
	s.Buffer(make([]byte, 64<<10), maxLine)
	for s.Scan() {
		fmt.Fprintln(p.log, s.Text())
		p.out.add(s.Text())
	}
	_, _ = io.Copy(io.Discard, stdout)
	p.err = p.cmd.Wait()
	p.hold.Close()
	p.log.Close()
	close(p.done)
	p.out.end()
}

// Next is the next line of stdout. It waits for one, and returns io.EOF when the program has ended and
// everything it printed was read, or the reason why ctx ended.
func (p *Process) Next(ctx context.Context) (string, error) { return p.out.next(ctx) }

// Done is closed when the program and its whole group have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended, once Done is closed; nil for exit code 0.
func (p *Process) Err() error { return p.err }

// ExitCode is the program's, once Done is closed; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// CPU is the processor time of the whole group, once Done is closed.
func (p *Process) CPU() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Stop asks the program to end, and after a grace kills its group. It returns when both are gone.
func (p *Process) Stop(grace time.Duration) {
	p.once.Do(func() {
		terminate(p.cmd.Process.Pid)
		select {
		case <-p.done:
			return
		case <-time.After(grace):
		}
		p.hold.Close()
	})
	<-p.done
}

// Wait waits for the end; when ctx is done first, it stops the program and returns the reason.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Stop(time.Second)
		return context.Cause(ctx)
	}
}

// Size is how long a log is so far: where the next program's part of it begins.
func Size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Since is what a log says from an offset on.
func Since(file string, offset int64) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, offset, maxLine))
	if err != nil {
		return ""
	}
	return string(b)
}

// LastLine is the last line of a log that says something, for reasons in tables.
func LastLine(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if l := strings.TrimSpace(lines[i]); l != "" && !strings.HasPrefix(l, "$ ") {
			return l
		}
	}
	return ""
}
