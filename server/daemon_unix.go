//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"muxperf/report"
)

// daemonise starts the same program in a session of its own, without -D, and ends. A mistake on the
// command line was found before.
func daemonise(args []string, stdout io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("going into the background: %w", err)
	}
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-D" || a == "--daemon" })
	if len(rest) == len(args) {
		return &report.Error{Kind: report.KindUsage, Message: "-D has to stand alone, not among other short flags"}
	}
	cmd := exec.Command(exe, rest...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("going into the background: %w", err)
	}
	fmt.Fprintf(stdout, "server runs in the background as process %d\n", cmd.Process.Pid)
	return cmd.Process.Release()
}
