// The client's command line.

package main

import (
	"fmt"
	"math"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"time"

	"muxperf/cli"
	"muxperf/internal/options"
	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/testee"
	"muxperf/transport/identity"
	"muxperf/transport/stack"
	"muxperf/transport/wisp"
	"muxperf/transport/wisp/ws"
)

// maxConnections is the most that a test other than hold takes.
const maxConnections = 20_000

// A clientOptions is everything that the command line says.
type clientOptions struct {
	address               identity.Address
	server                string  // as given
	iperfHost             *string // given as iperf3's -c
	timeGiven, stackGiven bool
	securityGiven         bool
	port                  int
	v4, v6                bool
	bind                  string
	cport                 int
	security              string
	mux                   string
	protocol              string
	dialect               bool
	target                string

	test        string
	time        time.Duration
	bytes       uint64
	blocks      uint64
	block       uint64
	omit        time.Duration
	streams     int
	connections int
	reverse     bool
	bidir       bool
	rate        float64
	streamRate  float64
	verify      bool
	upload      uint64
	download    uint64

	request, response uint64
	outstanding       int
	transactions      float64
	noControl         bool
	engine            string
	holdStreams       bool
	batch             int
	batchDelay        time.Duration
	reps              int
	confidence        string

	connectTimeout time.Duration
	stall          time.Duration
	tokenFile      string
	affinity       string
	title          string
	labels         []string
	extra          string
	serverOutput   bool

	wispVersion string
	wispMask    string
	wispPayload uint64
	wispUser    string
	wispEpoxy   bool

	identity options.Identity
	layers   options.Layers
	output   options.Output
}

func defaults() *clientOptions {
	return &clientOptions{
		port: options.DefaultPort, security: stack.Noise, mux: stack.Yamux, protocol: "auto",
		test: report.Flood, time: 10 * time.Second, block: protocol.BlockSize, streams: 1, connections: 1,
		request: 1, response: 1, outstanding: 1, reps: 1, engine: "auto",
		wispVersion: "auto", wispMask: "random", connectTimeout: 10 * time.Second, stall: control.DefaultStall,
		layers: options.DefaultLayers(), output: options.Output{Format: "a", Interval: time.Second},
	}
}

// table lays out the flags.
func (o *clientOptions) table() *cli.Command {
	c := cli.New("client", "measures streams to a muxperf, libp2p or Wisp server", "client [flags] ADDRESS")
	g := c.Group("Address")
	g.Count(&o.port, "port", "p", "PORT", 1, 65535, "the server's port, where ADDRESS has none")
	g.Switch(&o.v4, "version4", "4", "IPv4 only")
	g.Switch(&o.v6, "version6", "6", "IPv6 only")
	g.Text(&o.bind, "bind", "B", "HOST", "local address, also HOST%DEVICE")
	g.Count(&o.cport, "cport", "", "PORT", 1, 65535, "local port of the first connection")
	g.Text(&o.target, "target", "", "HOST:PORT", "through a Wisp server: the echo or discard server to measure")

	g = c.Group("Stack")
	given := func() { o.stackGiven = true }
	g.Choice(&o.security, "security", "", "NAME", []string{stack.Noise, stack.Plaintext}, "security layer").
		OnSet(func() { o.stackGiven, o.securityGiven = true, true })
	g.Choice(&o.mux, "mux", "", "NAME", []string{stack.Yamux, stack.Wisp, stack.None}, "muxer").OnSet(given)
	g.Choice(&o.protocol, "protocol", "", "NAME", []string{"auto", "muxperf", protocol.Perf100, protocol.Perf010, "echo", "discard"},
		"stream protocol; auto takes the first that the server speaks")
	g.Switch(&o.dialect, "perf-dialect", "", "/perf/1.0.0 with the 16-byte header of libp2p's unified-testing images")
	o.identity.Add(g)
	g.Text(&o.tokenFile, "token-file", "", "FILE", "the token that the server asks for")

	g = c.Group("Test")
	g.Choice(&o.test, "test", "", "NAME", []string{report.Flood, report.RR, report.CRR, report.Open, report.Hold},
		"flood a stream, exchange requests and responses, the same with a new connection or a new stream for each, or hold many")
	g.Duration(&o.time, "time", "t", "SECONDS", "how long to measure").OnSet(func() { o.timeGiven = true })
	g.Size(&o.bytes, "bytes", "n", "BYTES", "exactly so many bytes each way; with -t whichever ends first")
	g.Size(&o.blocks, "blockcount", "k", "N", "exactly so many blocks")
	g.Size(&o.block, "length", "l", "BYTES", "one write, 1 to 1M")
	g.Duration(&o.omit, "omit", "O", "SECONDS", "warm-up that is left out of the result")
	g.Count(&o.streams, "parallel", "P", "N", 1, 20000, "streams per connection")
	g.Count(&o.connections, "connections", "", "N", 1, 2000000, "connections; all start together")
	g.Switch(&o.reverse, "reverse", "R", "the server sends, the client receives")
	g.Switch(&o.bidir, "bidir", "", "both send, on the same streams")
	g.Rate(&o.rate, "bitrate", "b", "BITS/S", "target rate each way, all streams together")
	g.Rate(&o.streamRate, "stream-bitrate", "", "BITS/S", "target rate of each stream")
	g.Switch(&o.verify, "verify", "", "the receiver checks every byte")

	g = c.Group("Transactions (--test rr, crr, open)")
	g.Size(&o.request, "request", "", "BYTES", "size of a request")
	g.Size(&o.response, "response", "", "BYTES", "size of a response")
	g.Count(&o.outstanding, "outstanding", "", "N", 1, 10000, "in flight at once")
	g.Func(o.setTransactions, "rate", "", "N", "open loop: so many a second, whatever the responses do")
	g.Switch(&o.noControl, "no-control", "", "the server is a bare echo or discard server, without any protocol of ours")
	g.Choice(&o.engine, "engine", "", "NAME", []string{"auto", testee.EngineEpoll, testee.EngineNet},
		"of bare rr and crr: system calls of our own, or Go's net; auto takes the former where it exists")
	g.Switch(&o.output.Histogram, "histogram", "", "draw the distribution")

	g = c.Group("Holding (--test hold)")
	g.Switch(&o.holdStreams, "hold-streams", "", "hold -P streams of each connection, not the connections alone")
	g.Count(&o.batch, "batch", "", "N", 1, 1<<20, "open so many, then pause")
	g.Duration(&o.batchDelay, "batch-delay", "", "SECONDS", "the pause; reported apart")

	g = c.Group("Repetition")
	g.Count(&o.reps, "reps", "", "N", 1, 1000, "run the test so many times")
	g.Text(&o.confidence, "confidence", "", "LEVEL,WIDTH", "repeat until the mean is that certain: 95,5 is 95 % and a full width of 5 %")

	g = c.Group("Layers")
	o.layers.AddTCP(g)
	o.layers.AddTuning(g)

	g = c.Group("Wisp")
	g.Choice(&o.wispVersion, "wisp-version", "", "N", []string{"auto", "1", "2"}, "version of the protocol; auto offers 2 and goes back to 1")
	g.Size(&o.wispPayload, "wisp-payload", "", "BYTES", "most bytes of one DATA packet, up to 1M [65523]")
	g.Choice(&o.wispMask, "ws-mask", "", "NAME", []string{"random", "fixed", "zero"}, "masking keys; random is the standard's")
	g.Text(&o.wispUser, "wisp-password-file", "", "FILE", "credentials, one line of USER:PASSWORD")
	g.Switch(&o.wispEpoxy, "wisp-credit-first", "", "the server sends CONTINUE before INFO, as epoxy does")

	g = c.Group("Time limits")
	g.Duration(&o.connectTimeout, "connect-timeout", "", "SECONDS", "to connect")
	g.Duration(&o.stall, "rcv-timeout", "", "SECONDS", "without a byte of payload for so long the run has stalled")

	g = c.Group("Output")
	o.output.Add(g)
	g.Text(&o.title, "title", "T", "TEXT", "put it before each line, and into the JSON")
	g.Texts(&o.labels, "label", "", "KEY=VALUE", "goes into the JSON")
	g.Text(&o.extra, "extra-data", "", "TEXT", "goes into the JSON")
	g.Switch(&o.serverOutput, "get-server-output", "", "print the server's result too")
	g.Text(&o.affinity, "affinity", "A", "N[,N]", "run on these processors only")
	o.aliases(c)
	c.Examples = []cli.Example{
		{Command: "client HOST", Does: "flood one stream for 10 s over Noise and Yamux"},
		{Command: "client --security plaintext --mux none -P 4 -R HOST", Does: "receive over four bare TCP connections"},
		{Command: "client --test rr --outstanding 16 HOST", Does: "round trips, 16 in flight"},
		{Command: "client ws://HOST:4001/ --target 127.0.0.1:9", Does: "flood a discard server through any Wisp server"},
	}
	c.Notes = []string{
		"ADDRESS is host, host:port, /ip4/…/tcp/…/p2p/…, ws://host:port/path/ or unix:/path. Sizes take K, M, G of 1024, rates of 1000.",
		"Unlike iperf3: -P counts streams of one connection, -b is the total, -n is exact, --bidir uses both directions of the same streams, -w is the socket buffer only.",
		"Exit codes: 0 ok, 1 the test failed, 2 usage, 3 cannot connect, 4 refused, 5 stalled, 6 payload changed or missing, 7 a threshold was missed, 127 not supported, 130 interrupted.",
	}
	return c
}

// aliases accepts the names that libp2p-perf, libp2p's perf harness and iperf3 have for our flags.
func (o *clientOptions) aliases(c *cli.Command) {
	g := c.Group("")
	g.Hide(g.Text(&o.server, "server-address", "", "ADDRESS", ""))
	g.Hide(g.Size(&o.upload, "upload-bytes", "", "BYTES", ""))
	g.Hide(g.Size(&o.download, "download-bytes", "", "BYTES", ""))
	g.Hide(g.Func(func(s string) error {
		if s != "tcp" {
			return fmt.Errorf("only tcp is supported")
		}
		return nil
	}, "transport", "", "NAME", ""))
	var ignored string
	g.Hide(g.Text(&ignored, "client", "c", "HOST", "")) // iperf3's -c HOST: see check
	c.Alias("transport-security", "security")
	c.Alias("streams", "parallel")
	o.server = ""
	o.iperfHost = &ignored
}

func (o *clientOptions) setTransactions(s string) error {
	n, err := cli.ParseRate(s)
	if err != nil || n <= 0 {
		return fmt.Errorf("want transactions per second")
	}
	o.transactions = n
	return nil
}

// check completes the options and finds what does not go together.
func (o *clientOptions) check(rest []string) error {
	for _, alias := range []string{o.server, *o.iperfHost} {
		if alias != "" {
			rest = append([]string{alias}, rest...)
		}
	}
	switch {
	case len(rest) == 0:
		return cli.Errorf("no address: client [flags] ADDRESS, such as client 192.0.2.1")
	case len(rest) > 1:
		return cli.Errorf("more than one address: %s", strings.Join(rest, " "))
	}
	o.server = rest[0]
	var err error
	if o.address, err = identity.ParseAddress(o.server, o.port); err != nil {
		return cli.Errorf("%v", err)
	}
	if o.address.Network == "tcp" {
		switch {
		case o.v4 && !o.v6:
			o.address.Network = "tcp4"
		case o.v6 && !o.v4:
			o.address.Network = "tcp6"
		}
	}
	if o.address.Scheme == "ws" {
		if o.securityGiven && o.security != stack.Plaintext {
			return cli.Errorf("--security %s: ws:// has no security layer of ours; --mux wisp HOST:PORT has", o.security)
		}
		o.mux, o.security = stack.Wisp, stack.Plaintext
	}
	if o.noControl && !o.stackGiven {
		o.mux, o.security = stack.None, stack.Plaintext
	}
	switch { // libp2p's perf harness names the bytes of each way
	case o.upload > 0 && o.download > 0:
		return cli.Errorf("--upload-bytes and --download-bytes: one of them at a time (--bidir -n BYTES sends both ways at once, --test rr measures round trips)")
	case o.upload > 0:
		o.bytes = o.upload
	case o.download > 0:
		o.bytes, o.reverse = o.download, true
	}
	return o.checkTest()
}

// checkTest looks at the test's parameters.
func (o *clientOptions) checkTest() error {
	if o.blocks > 0 {
		high, low := bits.Mul64(o.blocks, o.block)
		if high > 0 || low > math.MaxInt64 {
			return cli.Errorf("-k %d: so many blocks of %d bytes are more than can be counted", o.blocks, o.block)
		}
		o.bytes = low
	}
	if o.bytes > 0 && !o.timeGiven || o.test == report.Hold && !o.timeGiven {
		o.time = 0
	}
	if o.test != report.Hold && o.connections > maxConnections {
		return cli.Errorf("--connections %d: want at most %d, except with --test hold", o.connections, maxConnections)
	}
	switch {
	case o.block < 1 || o.block > protocol.MaxBlock:
		return cli.Errorf("-l %d: want 1 to %d bytes", o.block, protocol.MaxBlock)
	case o.reverse && o.bidir:
		return cli.Errorf("--reverse and --bidir exclude each other: --bidir sends both ways")
	case o.target != "" && o.mux != stack.Wisp:
		return cli.Errorf("--target needs a Wisp server: ws://HOST:PORT/ or --mux wisp")
	case o.address.Peer != "" && o.security == stack.Plaintext && o.mux != stack.Yamux:
		return cli.Errorf("the address names a peer id, but %s+%s proves none: use --security noise", o.security, o.mux)
	case o.request < 1 || o.request > protocol.MaxMessage || o.response < 1 || o.response > protocol.MaxMessage:
		return cli.Errorf("--request and --response: want 1 to %d bytes", protocol.MaxMessage)
	}
	for _, l := range o.labels {
		if k, _, ok := strings.Cut(l, "="); !ok || k == "" {
			return cli.Errorf("--label %s: want KEY=VALUE", l)
		}
	}
	return nil
}

// wisp makes the Wisp client's part of the configuration.
func (o *clientOptions) wisp() (wisp.ClientConfig, error) {
	cfg := wisp.ClientConfig{Path: o.address.URLPath, Mask: ws.Mask(o.wispMask), Payload: int(o.wispPayload), CreditFirst: o.wispEpoxy}
	if o.address.Network != "unix" {
		cfg.Host = o.address.HostPort()
	}
	cfg.Version, _ = strconv.Atoi(o.wispVersion) // auto is 0
	if o.wispPayload > 1<<20 {
		return cfg, cli.Errorf("--wisp-payload %d: want at most 1M", o.wispPayload)
	}
	if o.wispUser == "" {
		return cfg, nil
	}
	b, err := os.ReadFile(o.wispUser)
	if err != nil {
		return cfg, cli.Errorf("reading the Wisp credentials: %v", err)
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(b)), ":")
	if !ok || len(user) > 255 {
		return cfg, cli.Errorf("%s: want a line of USER:PASSWORD", o.wispUser)
	}
	cfg.User, cfg.Password = user, password
	return cfg, nil
}

// direction is which way the payload goes.
func (o *clientOptions) direction() control.Direction {
	switch {
	case o.bidir:
		return control.Both
	case o.reverse:
		return control.Download
	}
	return control.Upload
}

// params are what our own exchange asks for.
func (o *clientOptions) params() control.Params {
	return control.Params{Test: report.Flood, Direction: o.direction(), Duration: o.time, Omit: o.omit, Bytes: o.bytes,
		Block: int(o.block), Connections: o.connections, Streams: o.streams, Rate: o.rate, StreamRate: o.streamRate,
		Interval: o.output.Interval, Verify: o.verify, SocketBuf: int(o.layers.SocketBuf), Congestion: o.layers.Congestion,
		NoDelayOff: o.layers.Nagle, Stall: o.stall, Title: o.title}
}

// labelMap is the labels as the result has them.
func (o *clientOptions) labelMap() map[string]string {
	if len(o.labels) == 0 {
		return nil
	}
	m := map[string]string{}
	for _, l := range o.labels {
		k, v, _ := strings.Cut(l, "=")
		m[k] = v
	}
	return m
}

// token reads the shared secret.
func (o *clientOptions) token() ([]byte, error) {
	if o.tokenFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return nil, cli.Errorf("reading the token: %v", err)
	}
	return []byte(strings.TrimSpace(string(b))), nil
}
