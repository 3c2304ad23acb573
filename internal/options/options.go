// Package options is the part of the command line that client and server share: the layers' options, the
// identity, and the form of the output.
package options

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"muxperf/cli"
	"muxperf/report"
	"muxperf/transport/aead"
	"muxperf/transport/identity"
	"muxperf/transport/stack"
	"muxperf/transport/tcp"
	"muxperf/transport/yamux"
)

// DefaultPort is where a server listens.
const DefaultPort = 4001

// Identity is who we are.
type Identity struct {
	KeyFile    string
	FakeCrypto bool
	ZeroSeed   bool
}

// Add puts the identity's flags into g.
func (o *Identity) Add(g *cli.Group) {
	g.Text(&o.KeyFile, "key", "", "FILE", "lasting identity, an Ed25519 key in libp2p's form; made if it is not there")
	g.Switch(&o.FakeCrypto, "fake-crypto-seed", "", "the well-known identity of libp2p-perf (not secret)")
	g.Switch(&o.ZeroSeed, "zero-seed", "", "the well-known identity of libp2p's perf harness (not secret)")
}

// Load makes or reads the key; warnings go to log.
func (o *Identity) Load(log io.Writer) (identity.PrivateKey, error) {
	switch {
	case o.KeyFile != "":
		key, warning, err := identity.LoadOrCreate(o.KeyFile)
		if warning != "" {
			fmt.Fprintln(log, "warning:", warning)
		}
		return key, err
	case o.FakeCrypto:
		return identity.FromSeed(identity.FakeCryptoSeed()), nil
	case o.ZeroSeed:
		return identity.FromSeed(identity.ZeroSeed()), nil
	}
	return identity.Generate(), nil
}

// Layers are the options of the carrier and of the layers above it.
type Layers struct {
	SocketBuf     uint64
	MSS           int
	Congestion    string
	Nagle         bool
	TOS           int
	StreamWindow  uint64
	MaxWindow     uint64
	Frame         uint64
	NoiseWorkers  int
	AEAD          string
	HandshakeTime time.Duration
}

// DefaultLayers are the fast ones that every peer accepts.
func DefaultLayers() Layers {
	return Layers{StreamWindow: yamux.DefaultStreamWindow, MaxWindow: yamux.DefaultMaxWindow, AEAD: aead.Auto, HandshakeTime: 10 * time.Second}
}

// AddTCP puts the carrier's flags into g.
func (o *Layers) AddTCP(g *cli.Group) {
	g.Size(&o.SocketBuf, "window", "w", "BYTES", "socket buffers, SO_SNDBUF and SO_RCVBUF; a muxperf server gets the client's")
	g.Count(&o.MSS, "set-mss", "M", "BYTES", 88, 65535, "TCP maximum segment size")
	g.Text(&o.Congestion, "congestion", "C", "NAME", "TCP congestion control, such as cubic or bbr")
	g.Switch(&o.Nagle, "nagle", "", "leave Nagle's algorithm on (TCP_NODELAY is set otherwise)")
	g.Func(func(s string) error { return o.setTOS(s, 255, 0) }, "tos", "S", "N", "IP type of service, 0-255, also 0x.. or 0..")
	g.Func(o.setDSCP, "dscp", "", "NAME", "differentiated services code point: 0-63 or a name (ef, af41, cs5)")
}

// AddTuning puts the muxer's and the security layer's flags into g.
func (o *Layers) AddTuning(g *cli.Group) {
	g.Size(&o.StreamWindow, "stream-window", "", "BYTES", "receive window of a Yamux stream at its start, at least 256K")
	g.Size(&o.MaxWindow, "max-stream-window", "", "BYTES", "limit up to which it grows")
	g.Size(&o.Frame, "frame", "", "BYTES", "largest Yamux frame sent [4 Noise records, or 256K]")
	g.Count(&o.NoiseWorkers, "noise-workers", "", "N", 0, 64, "goroutines that seal, and as many that open, records [by cores]")
	g.Choice(&o.AEAD, "aead", "", "NAME", []string{aead.Auto, aead.OpenSSL, aead.Go}, "implementation of ChaCha20-Poly1305")
	g.Duration(&o.HandshakeTime, "handshake-timeout", "", "SECONDS", "for each layer of the stack")
}

func (o *Layers) setTOS(s string, most, shift int) error {
	n, err := strconv.ParseInt(s, 0, 32)
	if err != nil || n < 0 || n > int64(most) {
		return fmt.Errorf("want 0 to %d", most)
	}
	o.TOS = int(n) << shift
	return nil
}

// setDSCP reads a code point by number or by the names of RFC 2474, 2597, 3246 and 5865.
func (o *Layers) setDSCP(s string) error {
	names := map[string]int{"ef": 46, "va": 44, "le": 1, "df": 0}
	for class := range 8 {
		names[fmt.Sprintf("cs%d", class)] = 8 * class
		for drop := 1; class >= 1 && class <= 4 && drop <= 3; drop++ {
			names[fmt.Sprintf("af%d%d", class, drop)] = 8*class + 2*drop
		}
	}
	if n, ok := names[strings.ToLower(s)]; ok {
		o.TOS = n << 2
		return nil
	}
	if err := o.setTOS(s, 63, 2); err != nil {
		return fmt.Errorf("want 0 to 63, or a name: ef, va, le, df, cs0-cs7, af11-af43")
	}
	return nil
}

// TCP is the carrier's part.
func (o *Layers) TCP() tcp.Options {
	return tcp.Options{SocketBuf: int(o.SocketBuf), MSS: o.MSS, Congestion: o.Congestion, Delay: o.Nagle, TOS: o.TOS}
}

// Apply puts the options into a stack's configuration, and tells what is in force.
func (o *Layers) Apply(cfg *stack.Config) (map[string]string, error) {
	if o.StreamWindow < 256<<10 || o.StreamWindow > 1<<31 {
		return nil, cli.Errorf("--stream-window %d: want 256K to 2G; Yamux begins with 256K", o.StreamWindow)
	}
	if o.Frame != 0 && (o.Frame < 1024 || o.Frame > 1<<20) {
		return nil, cli.Errorf("--frame %d: want 1K to 1M; rust-libp2p takes no more", o.Frame)
	}
	provider, err := aead.Choose(o.AEAD)
	if err != nil {
		return nil, &report.Error{Kind: report.KindUnsupported, Message: err.Error(), Hint: "--aead auto falls back to Go's"}
	}
	cfg.TCP = o.TCP()
	cfg.NoiseWorkers, cfg.AEAD = o.NoiseWorkers, provider
	cfg.HandshakeTimeout = o.HandshakeTime
	cfg.Yamux = yamux.Config{Frame: int(o.Frame), StreamWindow: int(o.StreamWindow), MaxWindow: int(max(o.MaxWindow, o.StreamWindow))}
	tuning := map[string]string{
		"stream window": cli.FormatSize(o.StreamWindow), "largest stream window": cli.FormatSize(max(o.MaxWindow, o.StreamWindow)),
		"aead": provider.Name(),
	}
	if o.Frame != 0 {
		tuning["frame"] = cli.FormatSize(o.Frame)
	}
	return tuning, nil
}

// Output is the form of what is printed.
type Output struct {
	JSONForm   string
	JSONStream bool
	Format     string
	Verbose    bool
	Timestamps string
	LogFile    string
	Interval   time.Duration
	Histogram  bool
}

// Add puts the output's flags into g.
func (o *Output) Add(g *cli.Group) {
	g.Duration(&o.Interval, "interval", "i", "SECONDS", "time between reports; 0 for none")
	g.Choice(&o.Format, "format", "f", "UNIT", report.Formats(), "unit of rates: lower case bits, upper case bytes; m as libp2p-perf")
	g.OptionalChoice(&o.JSONForm, "json", "J", "FORM", report.JSON,
		[]string{report.JSON, report.IPerf3, report.Libp2p, report.PeerRun}, "print JSON: our own form, or another tool's")
	g.Switch(&o.JSONStream, "json-stream", "", "print a line of JSON for each event, as it happens")
	g.Switch(&o.Verbose, "verbose", "V", "more: environment, tuning, TCP figures of each interval")
	g.OptionalChoice(&o.Timestamps, "timestamps", "", "FORM", "time", []string{"time", "rfc3339"}, "put the time before each line of text")
	g.Text(&o.LogFile, "logfile", "", "FILE", "append the output to a file instead")
}

// Writer is where the results go: out, or the log file, which is the caller's to close.
func (o *Output) Writer(out io.Writer) (io.WriteCloser, error) {
	if o.LogFile == "" {
		return nopCloser{out}, nil
	}
	f, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, &report.Error{Kind: report.KindUsage, Message: "opening the log file: " + err.Error()}
	}
	return f, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Renderer makes what writes a run's results to w; tag goes before each line of text.
func (o *Output) Renderer(w io.Writer, tag string) (report.Renderer, error) {
	form := report.Text
	switch {
	case o.JSONStream:
		form = report.Stream
	case o.JSONForm != "":
		form = o.JSONForm
	}
	layout := map[string]string{"time": "15:04:05.000", "rfc3339": time.RFC3339}[o.Timestamps]
	return report.New(form, w, report.Options{Format: report.Format(o.Format), Verbose: o.Verbose, Histogram: o.Histogram,
		Timestamps: layout, Now: time.Now, Tag: tag})
}

// IsText reports whether people read the output.
func (o *Output) IsText() bool { return o.JSONForm == "" && !o.JSONStream }
