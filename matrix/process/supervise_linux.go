// Linux: process groups, and what /proc says about them.

package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// isolate puts the supervisor into a session of its own, out of reach of the terminal's Ctrl-C: the matrix
// decides what ends when.
func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// terminate asks the supervisor to end its program.
func terminate(pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) }

// RunSupervisor runs line in a process group of its own and ends the group with it, on SIGTERM, and when
// stdin ends. It returns the program's exit code.
func RunSupervisor(line string) int {
	cmd := exec.Command("sh", "-c", line)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 126
	}
	group := cmd.Process.Pid
	go func() {
		for range signals {
			_ = syscall.Kill(-group, syscall.SIGTERM)
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}()
	err := cmd.Wait()
	_ = syscall.Kill(-group, syscall.SIGKILL) // what the program left behind
	reap(group)
	if err == nil {
		return 0
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// reap waits until no process of the group is left, so that its ports are free.
func reap(group int) {
	for range 200 {
		if syscall.Kill(-group, 0) != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// GroupCPU is the processor time that the supervised group has used so far, those that have ended and
// were waited for included.
func (p *Process) GroupCPU() time.Duration {
	var ticks int64
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		fields, ok := statFields(f)
		if !ok || fields[3] != strconv.Itoa(p.cmd.Process.Pid) { // session id: the supervisor leads it
			continue
		}
		for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime, counted from the state
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / clockTicks
}

// clockTicks is USER_HZ, which Linux fixes at 100 for user space on every common architecture.
const clockTicks = 100

// statFields splits /proc/PID/stat after the name in parentheses, which may hold anything.
func statFields(file string) ([]string, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, false
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return nil, false
	}
	fields := strings.Fields(string(b[i+1:]))
	return fields, len(fields) > 14
}
