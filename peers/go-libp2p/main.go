// Command peer plays go-libp2p in the matrix: a server and a client of libp2p's perf protocols, on the
// library as it is, over TCP with Yamux and with Noise or plaintext. docs/peers.md has the contract.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// errUnsupported ends the program with 127.
var errUnsupported = errors.New("not supported by this peer")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := &lines{w: stdout}
	if err := dispatch(ctx, args, out, stderr); err != nil {
		out.write(map[string]any{"event": "error", "message": err.Error()})
		if errors.Is(err, errUnsupported) {
			return 127
		}
		return 1
	}
	return 0
}

// dispatch runs the subcommand that args name.
func dispatch(ctx context.Context, args []string, out *lines, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: peer server|client|ping|idle|version [flags]")
	}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	set.SetOutput(stderr)
	var o options
	o.flags(set)
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "server":
		return serve(ctx, o, out)
	case "client":
		return o.client(ctx, out)
	case "ping":
		return o.ping(ctx, out)
	case "idle":
		return o.idle(ctx, out)
	case "version":
		return version(out.w)
	}
	return fmt.Errorf("%w: subcommand %q", errUnsupported, args[0])
}

// options are the flags of all subcommands.
type options struct {
	listen, connect, security, protocol string
	seed                                int
	seconds                             float64
	bytes                               uint64
	download                            bool
	block, streams, connections, count  int
}

func (o *options) flags(s *flag.FlagSet) {
	s.StringVar(&o.listen, "listen", "127.0.0.1:0", "where the server listens, host:port")
	s.StringVar(&o.connect, "connect", "", "the server's multiaddr with its peer id")
	s.StringVar(&o.security, "security", "noise", "noise or plaintext")
	s.StringVar(&o.protocol, "protocol", perf100, "/perf/0.1.0 or /perf/1.0.0")
	s.IntVar(&o.seed, "seed", 0, "makes the identity deterministic")
	s.Float64Var(&o.seconds, "seconds", 10, "how long to flood")
	s.Uint64Var(&o.bytes, "bytes", 0, "exactly so many bytes instead, over all streams")
	s.BoolVar(&o.download, "download", false, "the server sends (/perf/1.0.0)")
	s.IntVar(&o.block, "block", 128_000, "bytes of one write")
	s.IntVar(&o.streams, "streams", 1, "streams per connection")
	s.IntVar(&o.connections, "connections", 1, "connections")
	s.IntVar(&o.count, "count", 1000, "pings, or idle streams")
}

func (o options) duration() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// version prints the library's.
func version(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary does not know its modules")
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/libp2p/go-libp2p" {
			_, err := fmt.Fprintf(w, "go-libp2p %s, %s\n", m.Version, info.GoVersion)
			return err
		}
	}
	return errors.New("this binary has no go-libp2p in it")
}

// lines writes JSON lines, whole ones only.
type lines struct{ w io.Writer }

func (l *lines) write(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, _ = l.w.Write(append(b, '\n'))
	}
}

// A result is the line that ends a run.
type result struct {
	Event      string  `json:"event"`
	Role       string  `json:"role"`
	Protocol   string  `json:"protocol"`
	Sent       uint64  `json:"sent_bytes"`
	Received   uint64  `json:"received_bytes"`
	Seconds    float64 `json:"seconds"`
	Setup      float64 `json:"setup_seconds,omitempty"`
	Incomplete bool    `json:"incomplete,omitempty"`
}
