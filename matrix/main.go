// Command matrix runs every client against every server over every stack, and says which is faster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"muxperf/cli"
	"muxperf/internal/results"
	"muxperf/matrix/process"
	"muxperf/protocol/control"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == process.Supervise {
		os.Exit(process.RunSupervisor(os.Args[2]))
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute is the whole program; it returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	ctx, stop := interruptible()
	defer stop()
	err := dispatch(ctx, args, stdout, stderr)
	if err == nil || errors.Is(err, cli.ErrDone) {
		return 0
	}
	e := results.Classify(err)
	fmt.Fprintln(stderr, "matrix:", e.Error())
	return e.Kind.ExitCode()
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM; the second has its default
// effect, and the supervisors then end the peers.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel(control.ErrInterrupted)
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	return ctx, func() { cancel(nil) }
}

// dispatch picks the subcommand; measuring is what happens without one.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "compare":
			return compare(args[1:], stdout)
		case "report":
			return rerender(args[1:], stdout)
		case "run":
			args = args[1:]
		}
	}
	return measure(ctx, args, stdout, stderr)
}
