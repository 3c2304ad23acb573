// The server's command line.

package main

import (
	"os"
	"strings"
	"time"

	"muxperf/cli"
	"muxperf/internal/options"
	"muxperf/testee"
	"muxperf/transport/wisp"
	"muxperf/transport/wisp/proxy"
)

// A serverOptions is everything that the command line says.
type serverOptions struct {
	listen     []string
	port       int
	bind       string
	v4, v6     bool
	backlog    int
	oneOff     bool
	daemon     bool
	pidFile    string
	security   string
	dialect    bool
	allowPeers []string
	tokenFile  string

	maxClients  int
	maxStreams  int
	maxDuration time.Duration
	maxBytes    uint64
	maxRate     float64
	perAddress  int
	maxBuffered uint64
	idle        time.Duration
	drain       time.Duration
	debug       bool

	testees    []string
	configFile string
	engine     string
	onStall    string
	stallCap   uint64
	shards     int

	wispAllow    []string
	wispCredit   int
	wispStreams  int
	wispMOTD     string
	wispPassword string

	identity options.Identity
	layers   options.Layers
	output   options.Output
}

func defaults() *serverOptions {
	return &serverOptions{
		port: options.DefaultPort, security: "any", maxStreams: 16384, engine: "auto", onStall: testee.StallBlock, stallCap: 1 << 20, shards: 1, wispCredit: 128, wispStreams: 1024, perAddress: 4096, maxBuffered: 1 << 30, drain: 10 * time.Second,
		layers: options.DefaultLayers(), output: options.Output{Format: "a", Interval: time.Second},
	}
}

// table lays out the flags.
func (o *serverOptions) table() *cli.Command {
	c := cli.New("server", "serves muxperf, libp2p perf and Wisp clients on one port", "server [flags]")
	g := c.Group("Listening")
	g.Count(&o.port, "port", "p", "PORT", 0, 65535, "port to listen on; 0 chooses a free one")
	g.Text(&o.bind, "bind", "B", "HOST", "address to listen on, also HOST%DEVICE [all]")
	g.Switch(&o.v4, "version4", "4", "IPv4 only")
	g.Switch(&o.v6, "version6", "6", "IPv6 only")
	g.Texts(&o.listen, "listen", "", "ADDRESS", "listen there instead: host:port, unix:/path, or a multiaddr")
	g.Count(&o.backlog, "backlog", "", "N", 1, 1<<20, "accept backlog [the system's]")
	g.Switch(&o.oneOff, "one-off", "1", "serve one run, then end")
	g.Switch(&o.daemon, "daemon", "D", "run in the background")
	g.Text(&o.pidFile, "pidfile", "I", "FILE", "write the process id there")

	g = c.Group("Stack (the client chooses; these restrict)")
	g.Choice(&o.security, "security", "", "NAME", []string{"any", "noise", "plaintext"}, "accept this security layer only")
	g.Switch(&o.dialect, "perf-dialect", "", "/perf/1.0.0 with the 16-byte header of libp2p's unified-testing images")
	o.identity.Add(g)
	g.Texts(&o.allowPeers, "allow-peer", "", "PEER-ID", "serve only clients that prove this identity")
	g.Text(&o.tokenFile, "token-file", "", "FILE", "serve only clients that know the token in this file")

	g = c.Group("Limits (0 for none)")
	g.Count(&o.maxClients, "max-clients", "", "N", 0, 1<<20, "runs at once; more are refused")
	g.Count(&o.maxStreams, "max-streams", "", "N", 0, 20000, "data streams of a run")
	g.Duration(&o.maxDuration, "max-duration", "", "SECONDS", "length of a run; what exceeds it is not granted")
	g.Size(&o.maxBytes, "max-bytes", "", "BYTES", "payload of a run each way; what exceeds it is not granted")
	g.Rate(&o.maxRate, "max-rate", "", "BITS/S", "rate of a run each way; it is throttled to that")
	g.Count(&o.perAddress, "max-connections-per-address", "", "N", 0, 1<<20, "connections of one client address")
	g.Size(&o.maxBuffered, "max-buffered", "", "BYTES", "payload that all connections together may hold unread; beyond it they are not read")
	g.Duration(&o.idle, "idle-timeout", "", "SECONDS", "close a connection without a stream for so long")
	g.Duration(&o.drain, "drain-timeout", "", "SECONDS", "how long runs may go on after SIGTERM")

	g = c.Group("Testees (bare sockets)")
	g.Texts(&o.testees, "testee", "", "[MODE=]ADDR", "serve echo, discard or chargen at host:port, :port or unix:/path, besides")
	g.Text(&o.configFile, "config", "", "FILE", "testees from a list of transports in Crossbar's form, YAML or JSON")
	g.Choice(&o.engine, "engine", "", "NAME", []string{"auto", testee.EngineEpoll, testee.EngineNet}, "of testees; auto takes epoll where it exists")
	g.Choice(&o.onStall, "on-stall", "", "NAME", []string{testee.StallBlock, testee.StallDrop}, "with a peer that does not read: stop reading, or drop the echo")
	g.Size(&o.stallCap, "stall-cap", "", "BYTES", "echo that may wait for a peer with --on-stall=drop")
	g.Count(&o.shards, "shards", "", "N", 1, 256, "processes that serve each testee together, for more connections than one may have")

	g = c.Group("Wisp")
	g.Texts(&o.wispAllow, "wisp-allow", "", "HOST:PORT", "dial this destination for clients: name, *.name, address or CIDR; port, range or *")
	g.Count(&o.wispCredit, "wisp-credit", "", "N", 1, 65536, "packets that a client may send on a stream before it is told to go on")
	g.Count(&o.wispStreams, "wisp-max-streams", "", "N", 1, 1<<20, "streams of one WebSocket")
	g.Text(&o.wispMOTD, "wisp-motd", "", "TEXT", "told to clients of version 2")
	g.Text(&o.wispPassword, "wisp-password-file", "", "FILE", "serve only clients with a password: lines of USER:PASSWORD")

	g = c.Group("Layers")
	o.layers.AddTCP(g)
	o.layers.AddTuning(g)

	g = c.Group("Output")
	o.output.Add(g)
	g.Switch(&o.debug, "debug", "", "log every connection")

	for alias, name := range map[string]string{"server-address": "listen", "listen-address": "listen", "transport-security": "security"} {
		c.Alias(alias, name)
	}
	ignored := false
	hidden := c.Group("")
	hidden.Hide(hidden.Switch(&ignored, "run-server", "", "accepted for the libp2p perf harness"))
	hidden.Hide(hidden.Switch(&ignored, "server", "s", "accepted, as iperf3 has it"))
	c.Examples = []cli.Example{
		{Command: "server", Does: "listen on port 4001 of every address, and print the client's command"},
		{Command: "server -p 0 -1 --json", Does: "serve one run on a free port, print its result as JSON"},
	}
	c.Notes = []string{"One port speaks everything: Noise or plaintext with Yamux, Wisp or no muxer; /muxperf, /perf/0.1.0 and /perf/1.0.0. Sizes take K, M, G of 1024, rates of 1000."}
	return c
}

// wisp makes the Wisp server's part of the configuration.
func (o *serverOptions) wisp() (wisp.ServerConfig, error) {
	cfg := wisp.ServerConfig{Credit: o.wispCredit, MaxStreams: o.wispStreams, MOTD: o.wispMOTD}
	for _, text := range o.wispAllow {
		rule, err := proxy.ParseRule(text)
		if err != nil {
			return cfg, cli.Errorf("--wisp-allow %v", err)
		}
		cfg.Allow = append(cfg.Allow, rule)
	}
	if o.wispPassword == "" {
		return cfg, nil
	}
	b, err := os.ReadFile(o.wispPassword)
	if err != nil {
		return cfg, cli.Errorf("reading the Wisp passwords: %v", err)
	}
	cfg.Passwords = map[string]string{}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		user, password, ok := strings.Cut(line, ":")
		if !ok || password == "" || len(user) > 255 {
			return cfg, cli.Errorf("%s: want lines of USER:PASSWORD", o.wispPassword)
		}
		cfg.Passwords[user] = password
	}
	return cfg, nil
}

// token reads the shared secret.
func (o *serverOptions) token() ([]byte, error) {
	if o.tokenFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return nil, cli.Errorf("reading the token: %v", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 8 {
		return nil, cli.Errorf("the token in %s has fewer than 8 characters", o.tokenFile)
	}
	return []byte(token), nil
}
