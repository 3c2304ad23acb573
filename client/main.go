// Command client dials a server, runs one test and prints the result.
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
	"muxperf/protocol/control"
	"muxperf/testee"
)

func main() {
	if testee.MaybeWorker() {
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signalled()
	defer stop()
	err := test(ctx, args, stdout, stderr)
	if err == nil || errors.Is(err, cli.ErrDone) {
		return 0
	}
	e := results.Classify(err)
	if cause := context.Cause(ctx); cause != nil {
		e = results.Classify(cause)
	}
	fmt.Fprintln(stderr, "client:", e.Error())
	return e.Kind.ExitCode()
}

// signalled returns a context that ends with SIGINT or SIGTERM: the run then ends in order, and both ends
// print what they have. A second signal ends the process at once.
func signalled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel(control.ErrInterrupted)
		case <-ctx.Done():
		}
		signal.Stop(signals) // the next one has its default effect
	}()
	return ctx, func() { cancel(nil) }
}

// test parses the command line and runs what it asks for.
func test(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := defaults()
	rest, err := o.table().Parse(args, stdout)
	if err != nil {
		return err
	}
	if err := o.check(rest); err != nil {
		return err
	}
	out, err := o.output.Writer(stdout)
	if err != nil {
		return err
	}
	defer out.Close()
	renderer, err := o.output.Renderer(out, "")
	if err != nil {
		return err
	}
	r, err := newRunner(o, args, renderer, stderr)
	if err != nil {
		return err
	}
	return r.run(ctx)
}
