// Testees beside the server's one port: each has a socket of its own, since it must echo anything.

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"muxperf/cli"
	"muxperf/testee"
)

// A testeeSet is the testees of one server.
type testeeSet struct {
	ones   []*testee.Testee
	shards []*testee.Shards
	wg     sync.WaitGroup
	log    *slog.Logger
}

// startTestees opens the testees that the command line and the configuration file name, and says where
// they are. They serve until ctx is done.
func (o *serverOptions) startTestees(ctx context.Context, out io.Writer, log *slog.Logger) (*testeeSet, error) {
	specs, err := o.testeeSpecs()
	if err != nil {
		return nil, err
	}
	cfg := testee.Config{OnStall: o.onStall, StallCap: int(o.stallCap), Log: log}
	if o.engine != "auto" {
		cfg.Engine = o.engine
	}
	set := &testeeSet{log: log}
	if len(specs) > 0 {
		if _, err := testee.FileLimit(); err != nil {
			log.Debug("the limit of open files", "error", err)
		}
	}
	for _, s := range specs {
		address, err := set.start(ctx, s, cfg, o.shards)
		if err != nil {
			set.close()
			return nil, err
		}
		if o.output.IsText() {
			fmt.Fprintf(out, "Testee: %s on %s\n", s.Mode, address)
		}
	}
	return set, nil
}

// testeeSpecs collects the specs.
func (o *serverOptions) testeeSpecs() ([]testee.Spec, error) {
	var specs []testee.Spec
	for _, text := range o.testees {
		s, err := testee.ParseSpec(text)
		if err != nil {
			return nil, cli.Errorf("--testee %v", err)
		}
		s.Backlog, s.Debug = o.backlog, o.debug
		specs = append(specs, s)
	}
	if o.configFile == "" {
		return specs, nil
	}
	b, err := os.ReadFile(o.configFile)
	if err != nil {
		return nil, cli.Errorf("reading the configuration: %v", err)
	}
	more, err := testee.ParseConfig(b)
	if err != nil {
		return nil, cli.Errorf("%s: %v", o.configFile, err)
	}
	return append(specs, more...), nil
}

// start serves one testee, in this process or in several.
func (s *testeeSet) start(ctx context.Context, spec testee.Spec, cfg testee.Config, shards int) (address string, err error) {
	if shards > 1 && spec.Network != "unix" {
		sh, err := testee.ServeSharded(spec, cfg, shards)
		if err != nil {
			return "", err
		}
		s.shards = append(s.shards, sh)
		return fmt.Sprintf("%s, in %d processes", sh.Address, shards), nil
	}
	t, err := testee.Listen(ctx, spec, cfg)
	if err != nil {
		return "", err
	}
	s.ones = append(s.ones, t)
	s.wg.Go(func() {
		if err := t.Serve(ctx); err != nil {
			s.log.Error("a testee has ended", "error", err)
		}
	})
	return t.Addr().String(), nil
}

// close waits for the testees, whose context is done, and ends the processes.
func (s *testeeSet) close() {
	for _, sh := range s.shards {
		sh.Close()
	}
	s.wg.Wait()
}
