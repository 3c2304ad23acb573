//go:build linux

// Playing a step: the client's process with its fault, and what came of it.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muxperf/bench/link"
	"muxperf/report"
)

// The hang guards, far beyond the time limits that the client has: 10 s for each layer, 10 s of silence, and
// up to a minute for the data streams of a run to be opened while some of them go through.
const (
	patience     = 60 * time.Second
	brokenExtra  = 75 * time.Second
	orphanTime   = 10 * time.Second
	afterTheQuit = 10 * time.Second
	holdTime     = 2 * time.Minute // that a client may take to open what it is to hold
)

// An outcome is what a client's process left.
type outcome struct {
	command string
	exit    int // -1: ended by a signal
	signal  string
	hung    bool
	orphans bool // processes of its group outlived it
	result  *report.Result
	unread  error // why the result could not be read
	stderr  string
	struck  bool  // the proxy's fault has happened
	later   int64 // bytes that went the same way after it
}

// timedOut reports whether a client says that a time limit has run out.
func (o *outcome) timedOut() bool {
	return o.result != nil && o.result.Error != nil && o.result.Error.Kind == report.KindStalled
}

// play runs one step and enters it in the ledger.
func (s *soak) play(ctx context.Context, st *step) {
	if st.test == hostileTest {
		err := beHostile(ctx, s.server.places[st.place], st.fault)
		if ctx.Err() == nil {
			s.ledger.enter(st, nil, problems(err))
		}
		return
	}
	began := time.Now()
	o, err := s.playClient(ctx, st)
	switch still := s.pulse.stood(began, time.Now()); {
	case ctx.Err() != nil: // the server is gone, or the user ended it: this says nothing
	case err == nil && st.fault.harmless() && o.timedOut() && still > 0:
		s.ledger.excuse(st, o, still)
	case err != nil:
		s.ledger.enter(st, nil, problems(err))
	default:
		s.ledger.enter(st, o, check(st, o))
	}
}

func problems(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// playClient opens what breaks the connections, and runs the client through it.
func (s *soak) playClient(ctx context.Context, st *step) (*outcome, error) {
	to := s.server.places[st.place]
	switch f := st.fault; {
	case f.name == faultSlow:
		l, err := link.Listen(ctx, to.text, f.path)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		to.text = l.Addr()
	case f.proxied():
		listen := address{"tcp4", "127.0.0.1:0"}
		if to.network == "unix" {
			listen = address{"unix", filepath.Join(s.dir, fmt.Sprintf("proxy-%d.sock", s.sockets.Add(1)))}
		}
		p, err := startProxy(ctx, listen, to, f)
		if err != nil {
			return nil, err
		}
		defer p.close()
		to.text = p.listener.Addr().String()
		o, err := s.runClient(ctx, st, to)
		if err == nil {
			o.struck, o.later = p.struck.Load(), p.later.Load()
		}
		return o, err
	}
	return s.runClient(ctx, st, to)
}

// arguments are the client's.
func (s *soak) arguments(st *step, to address) []string {
	args := append([]string{"-J"}, st.args...)
	if st.target != nowhere {
		args = append(args, "--target", s.server.places[st.target].text)
	}
	if st.ws {
		return append(args, "ws://"+to.text+"/")
	}
	return append(args, to.String())
}

// runClient runs the client to its end.
func (s *soak) runClient(ctx context.Context, st *step, to address) (*outcome, error) {
	args := s.arguments(st, to)
	cmd := exec.Command(s.client, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = orphanTime // what the client leaves behind may hold its output open
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a client: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its state
		close(ended)
	}()
	group := -cmd.Process.Pid
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }()
	signalled := make(chan struct{})
	go func() {
		defer close(signalled)
		st.fault.signal(cmd.Process.Pid, ended)
	}()
	o := &outcome{command: "client " + strings.Join(args, " ")}
	o.hung = wait(ctx, ended, st.limit(), cmd)
	<-signalled
	o.exit = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		o.signal = ws.Signal().String()
	}
	o.orphans = outlived(group)
	o.stderr = stderr.String()
	o.result = &report.Result{}
	if o.unread = json.Unmarshal(stdout.Bytes(), o.result); o.unread != nil {
		o.result, o.unread = nil, fmt.Errorf("%w in %q", o.unread, lastLines(stdout.String(), 5))
	}
	return o, nil
}

// limit is when a client hangs.
func (s *step) limit() time.Duration {
	d := s.length + patience
	if !s.fault.harmless() {
		d += brokenExtra
	}
	if s.test == "hold" {
		d += holdTime
	}
	return d
}

// wait waits for the end, and reports whether it had to be forced because the client hung; the client then
// prints where.
func wait(ctx context.Context, ended <-chan struct{}, limit time.Duration, cmd *exec.Cmd) (hung bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	case <-timer.C:
		hung = true
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-ended:
		case <-time.After(afterTheQuit):
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	return hung
}

// signal does to the process what the fault says, if the process lives so long.
func (f fault) signal(pid int, ended <-chan struct{}) {
	number, ok := map[string]syscall.Signal{faultKill: syscall.SIGKILL, faultInt: syscall.SIGINT, faultStop: syscall.SIGSTOP}[f.name]
	if !ok || over(ended, f.after) {
		return
	}
	_ = syscall.Kill(pid, number)
	if f.name == faultStop {
		over(ended, f.pause)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// over waits for d, and reports whether the process has ended by then.
func over(ended <-chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}

// outlived reports whether some process of a group stays although its leader is gone.
func outlived(group int) bool {
	for end := time.Now().Add(orphanTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if errors.Is(syscall.Kill(group, 0), syscall.ESRCH) {
			return false
		}
	}
	return true
}
