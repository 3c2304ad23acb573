//go:build !linux

// Elsewhere the program runs under the supervisor without a group: what it starts itself may outlive it.

package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func isolate(*exec.Cmd) {}

func terminate(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Signal(os.Interrupt)
	}
}

// RunSupervisor runs line and kills it when stdin ends.
func RunSupervisor(line string) int {
	cmd := exec.Command("sh", "-c", line)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 126
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = cmd.Process.Kill()
	}()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// GroupCPU is not known here.
func (p *Process) GroupCPU() time.Duration { return 0 }
