// Command server listens, serves every test of every client, and prints what each of them measured.
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
	err := serve(ctx, args, stdout, stderr)
	if err == nil || errors.Is(err, cli.ErrDone) {
		return 0
	}
	e := results.Classify(err)
	fmt.Fprintln(stderr, "server:", e.Error())
	return e.Kind.ExitCode()
}

// signalled returns a context that ends with SIGINT or SIGTERM: the server then drains. A second signal
// ends the process at once.
func signalled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
		signal.Stop(signals) // the next one has its default effect
	}()
	return ctx, cancel
}

// serve parses the command line, listens and serves until ctx is done.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := defaults()
	command := o.table()
	rest, err := command.Parse(args, stdout)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return cli.Errorf("%q is one argument too many: server takes flags only (-p PORT, --listen ADDRESS)", rest[0])
	}
	if o.daemon {
		return daemonise(args, stdout)
	}
	return o.serve(ctx, args, stdout, stderr)
}
