// Running a test: dial, measure, repeat, print. Whatever happens, a result is made of what there is.

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"muxperf/cli"
	"muxperf/internal/environ"
	"muxperf/internal/results"
	"muxperf/measure"
	"muxperf/report"
	"muxperf/transport"
	"muxperf/transport/stack"
)

// A runner runs what the command line asks for.
type runner struct {
	o        *clientOptions
	cfg      stack.Config
	tuning   map[string]string
	env      map[string]string
	command  []string
	token    []byte
	renderer report.Renderer
	log      io.Writer
	clock    measure.Clock
	mu       sync.Mutex // the renderer's
}

func newRunner(o *clientOptions, args []string, renderer report.Renderer, log io.Writer) (*runner, error) {
	token, err := o.token()
	if err != nil {
		return nil, err
	}
	key, err := o.identity.Load(log)
	if err != nil {
		return nil, cli.Errorf("%v", err)
	}
	r := &runner{o: o, env: environ.Collect(), command: append([]string{"client"}, environ.Redact(args)...),
		token: token, renderer: renderer, log: log, clock: time.Now}
	r.cfg = stack.Config{Security: o.security, Mux: o.mux, Key: key, ConnectTimeout: o.connectTimeout}
	if r.tuning, err = o.layers.Apply(&r.cfg); err != nil {
		return nil, err
	}
	r.cfg.TCP.Bind, r.cfg.TCP.ClientPort = o.bind, o.cport
	if r.cfg.WispClient, err = o.wisp(); err != nil {
		return nil, err
	}
	if o.affinity != "" {
		if err := setAffinity(o.affinity); err != nil {
			return nil, cli.Errorf("--affinity %s: %v", o.affinity, err)
		}
	}
	return r, nil
}

// run runs the test, as often as it takes, and prints the result.
func (r *runner) run(ctx context.Context) error {
	res, err := r.repeat(ctx)
	if err != nil && res.Error == nil {
		res.Error = results.Classify(err)
	}
	res.Complete = res.Error == nil
	if measured := len(res.Directions) > 0 || res.Latency != nil || res.Hold != nil; measured || !r.o.output.IsText() {
		r.renderer.End(res)
	}
	if res.Error != nil {
		return res.Error
	}
	return nil
}

// once runs the test once. The result is never nil.
func (r *runner) once(ctx context.Context) (*report.Result, error) {
	switch r.o.test {
	case report.RR, report.CRR, report.Open:
		return r.transactions(ctx)
	case report.Hold:
		return r.hold(ctx)
	}
	return r.flood(ctx)
}

// blank is a result about which nothing is known yet.
func (r *runner) blank(protocol string) *report.Result {
	return r.result(protocol, transport.Info{Remote: r.o.address.String(),
		Stack: transport.Stack{Carrier: "tcp", Security: r.o.security, Mux: r.o.mux}})
}

// result is what is known before the payload flows.
func (r *runner) result(protocol string, info transport.Info) *report.Result {
	res := results.New("client", r.o.test, protocol, info)
	res.Started, res.Command, res.Environment, res.Tuning = time.Now(), r.command, r.env, r.tuning
	res.Title, res.Labels, res.Extra = r.o.title, r.o.labelMap(), r.o.extra
	res.Params = results.Params(r.o.params())
	res.Params.Target = r.o.target
	return res
}

// dial sets up the connections, all at once. On an error those that were set up are closed.
func (r *runner) dial(ctx context.Context, n int) ([]transport.Session, error) {
	sessions := make([]transport.Session, n)
	errs := make([]error, n)
	slots := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				errs[i] = context.Cause(ctx)
				return
			}
			cfg := r.cfg
			if i > 0 && cfg.TCP.ClientPort > 0 {
				cfg.TCP.ClientPort += i
			}
			sessions[i], errs[i] = stack.Dial(ctx, r.o.address, cfg)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			closeAll(sessions)
			if n > 1 {
				err = fmt.Errorf("connection %d of %d: %w", i+1, n, err)
			}
			return nil, err
		}
	}
	return sessions, nil
}

// closeAll closes what is open, at the same time.
func closeAll(sessions []transport.Session) {
	var wg sync.WaitGroup
	for _, s := range sessions {
		if s != nil {
			wg.Go(func() { s.Close() })
		}
	}
	wg.Wait()
}

// show passes an interval to the renderer.
func (r *runner) show(iv report.Live) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renderer.Interval(iv)
}
