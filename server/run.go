// Running the server: from the command line to listeners, and from finished runs to what is printed.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"muxperf/cli"
	"muxperf/internal/environ"
	"muxperf/internal/options"
	"muxperf/measure"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/stack"
	"muxperf/transport/tcp"
)

// serve listens and serves until ctx is done.
func (o *serverOptions) serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	token, err := o.token()
	if err != nil {
		return err
	}
	key, err := o.identity.Load(stderr)
	if err != nil {
		return cli.Errorf("%v", err)
	}
	out, err := o.output.Writer(stdout)
	if err != nil {
		return err
	}
	defer out.Close()
	s, err := o.service(args, key, token, &locked{w: out}, stderr)
	if err != nil {
		return err
	}
	testing, stopTestees := context.WithCancel(ctx)
	defer stopTestees()
	testees, err := o.startTestees(testing, stdout, s.log)
	if err != nil {
		return err
	}
	defer testees.close()
	defer stopTestees()
	listeners, err := o.listeners(ctx)
	if err != nil {
		return err
	}
	if o.pidFile != "" {
		if err := os.WriteFile(o.pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return cli.Errorf("writing the process id: %v", err)
		}
		defer os.Remove(o.pidFile)
	}
	o.announce(stdout, listeners, key)
	return s.run(ctx, listeners, o.drain)
}

// run accepts on every listener until ctx is done, or until one run has ended if that is all; then it
// lets the runs that go on end.
func (s *service) run(ctx context.Context, listeners []*tcp.Listener, drain time.Duration) error {
	accepting, stop := context.WithCancel(ctx)
	defer stop()
	s.enough = stop
	serving, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { errs <- s.accept(accepting, serving, l) }()
	}
	var failed error
	for range listeners {
		if err := <-errs; err != nil {
			failed = errors.Join(failed, err)
			stop()
		}
	}
	// Sessions without a run end at once, runs get until the drain timeout.
	s.sessions.closeIdle()
	timer := time.AfterFunc(drain, func() { abandon(control.ErrInterrupted) })
	defer timer.Stop()
	s.wg.Wait()
	if n := s.strangers.Load(); n > 0 {
		s.log.Debug("connections that spoke none of our protocols", "count", n)
	}
	return failed
}

// service makes the service of the command line.
func (o *serverOptions) service(args []string, key identity.PrivateKey, token []byte, out, log io.Writer) (*service, error) {
	level := slog.LevelInfo
	if o.debug {
		level = slog.LevelDebug
	}
	s := &service{
		log:     slog.New(newLimitedHandler(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level, ReplaceAttr: dropTime}))),
		dialect: o.dialect, handshakes: newHandshakes(maxHandshakes, handshakesShare),
		limits:  serviceLimits{perAddress: o.perAddress, idle: o.idle, rate: o.maxRate, duration: o.maxDuration, bytes: o.maxBytes},
		printer: &printer{out: out, output: o.output}, pages: map[*control.Run]*page{}, oneOff: o.oneOff,
		command: append([]string{"server"}, environ.Redact(args)...), environment: environ.Collect(),
	}
	s.stack = stack.Config{Key: key, Serve: serves, WispPorts: wispPorts(), Only: o.security}
	if o.security == "any" {
		s.stack.Only = ""
	}
	if len(o.allowPeers) > 0 {
		allow, err := allowList(o.allowPeers)
		if err != nil {
			return nil, err
		}
		s.stack.AllowPeer = allow
	}
	var err error
	if s.tuning, err = o.layers.Apply(&s.stack); err != nil {
		return nil, err
	}
	if s.stack.WispServer, err = o.wisp(); err != nil {
		return nil, err
	}
	if o.maxBuffered > 0 {
		budget := transport.NewBudget(int64(min(o.maxBuffered, 1<<62)))
		s.stack.Yamux.Budget, s.stack.WispServer.Budget = budget, budget
	}
	s.control = &control.Server{Agent: environ.Agent(), Token: token, Clock: time.Now, Environment: s.environment,
		Limits:   control.Limits{Clients: o.maxClients, Streams: o.maxStreams, Duration: o.maxDuration, Bytes: o.maxBytes, Rate: o.maxRate},
		Observer: s.observeRun}
	return s, nil
}

// allowList makes the check of --allow-peer.
func allowList(ids []string) (func(string) error, error) {
	allowed := map[string]bool{}
	for _, text := range ids {
		id, err := identity.ParseID(text)
		if err != nil {
			return nil, cli.Errorf("--allow-peer %s: %v", text, err)
		}
		allowed[id.String()] = true
	}
	return func(id string) error {
		if !allowed[id] {
			return fmt.Errorf("%w: peer %s is not on the allow-list", transport.ErrRefused, id)
		}
		return nil
	}, nil
}

// listeners opens what the command line names.
func (o *serverOptions) listeners(ctx context.Context) ([]*tcp.Listener, error) {
	network := "tcp"
	switch {
	case o.v4 && !o.v6:
		network = "tcp4"
	case o.v6 && !o.v4:
		network = "tcp6"
	}
	opt := o.layers.TCP()
	opt.Backlog = o.backlog
	type place struct{ network, address string }
	var places []place
	for _, text := range o.listen {
		network, address, err := listenAddress(text)
		if err != nil {
			return nil, cli.Errorf("--listen %s: %v", text, err)
		}
		places = append(places, place{network, address})
	}
	if len(places) == 0 {
		host, device, ok := strings.Cut(o.bind, "%")
		if ok && !strings.HasPrefix(o.bind, "fe80:") {
			opt.Bind = "%" + device
		} else {
			host = o.bind
		}
		places = []place{{network, net.JoinHostPort(host, strconv.Itoa(o.port))}}
	}
	var out []*tcp.Listener
	for _, p := range places {
		l, err := tcp.Listen(ctx, p.network, p.address, opt)
		if err != nil {
			for _, l := range out {
				l.Close()
			}
			return nil, fmt.Errorf("listening on %s: %w", p.address, err)
		}
		out = append(out, l)
	}
	return out, nil
}

// listenAddress reads an address to listen on: unlike one to dial, its port may be 0 and its host empty.
func listenAddress(s string) (network, address string, err error) {
	if host, port, err := net.SplitHostPort(s); err == nil && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "unix:") {
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return "", "", fmt.Errorf("the port has to be 0 to 65535")
		}
		return "tcp", net.JoinHostPort(host, port), nil
	}
	zero := strings.Replace(s+"/", "/tcp/0/", "/tcp/1/", 1)
	a, err := identity.ParseAddress(strings.TrimSuffix(zero, "/"), options.DefaultPort)
	if err != nil {
		return "", "", err
	}
	if zero != s+"/" {
		a.Port = 0
	}
	return a.Network, a.HostPort(), nil
}

// announce prints how to reach the server. In the form of the matrix it is the ready line.
func (o *serverOptions) announce(stdout io.Writer, listeners []*tcp.Listener, key identity.PrivateKey) {
	for _, l := range listeners {
		address, multiaddr, command := reach(l.Addr(), key.ID())
		switch {
		case o.output.JSONForm == report.PeerRun:
			line, _ := json.Marshal(map[string]string{"event": "ready", "address": multiaddr})
			fmt.Fprintf(stdout, "%s\n", line)
		case o.output.IsText():
			fmt.Fprintf(stdout, "Listening on %s\n  %s\n  client %s\n", address, multiaddr, command)
		}
	}
}

// reach gives the forms of a listener's address: as it is, as a multiaddr that a client can dial, and as
// the argument of a client on this machine or another.
func reach(a net.Addr, id identity.ID) (address, multiaddr, command string) {
	if a.Network() == "unix" {
		at := identity.Address{Network: "unix", Path: a.String()}
		return at.String(), at.Multiaddr(id), at.String()
	}
	t := a.(*net.TCPAddr)
	at := identity.Address{Network: "tcp", Host: t.IP.String(), Port: t.Port}
	command = at.HostPort()
	if t.IP.IsUnspecified() {
		at.Host = outwardAddress()
		command = at.HostPort()
	}
	if t.Port == options.DefaultPort {
		command = at.Host
	}
	return a.String(), at.Multiaddr(id), command
}

// outwardAddress is the address of this machine that others most likely reach it by; loopback if it has
// no other.
func outwardAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// locked makes each Write whole: runs print at the same time.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// A printer renders each run by itself; a run's intervals appear as they come if no other run goes on,
// and with the client's address before them if one does.
type printer struct {
	out    io.Writer
	output options.Output
	mu     sync.Mutex
	active int
}

// A page is one run's output.
type page struct {
	mu       sync.Mutex
	renderer report.Renderer
	started  bool
}

// open starts a page.
func (p *printer) open(client string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
	tag := ""
	if p.active > 1 && p.output.IsText() {
		tag = "[" + client + "] "
	}
	r, err := p.output.Renderer(p.out, tag)
	if err != nil { // the forms were checked with the command line
		r, _ = report.New(report.Text, p.out, report.Options{})
	}
	return &page{renderer: r}
}

func (p *printer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
}

func (pg *page) start(r *report.Result) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	if !pg.started {
		pg.started = true
		pg.renderer.Start(r)
	}
}

func (pg *page) interval(iv measure.Interval, direction, at string, tcp transport.TCPInfo) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	pg.renderer.Interval(report.Live{Interval: iv, Direction: direction, At: at, TCP: tcp})
}

func (pg *page) end(r *report.Result) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	if !pg.started {
		pg.renderer.Start(r)
	}
	pg.renderer.End(r)
}

// dropTime leaves the time out of log lines: whoever wants it has --timestamps or a log collector.
func dropTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
