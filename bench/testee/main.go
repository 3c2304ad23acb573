// Command testee reproduces the figures of docs/testee.md: round trips and connections with both engines, each
// at both ends, and with sockperf, interleaved, and the accept rate of both engines.
//
//	go run ./bench/testee [-rounds 3] [-seconds 2] [-hold 60000,250000]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxperf/measure"
	"muxperf/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testee benchmark:", err)
		os.Exit(1)
	}
}

// A bench holds the built programs and what the command line says.
type bench struct {
	dir     string
	rounds  int
	seconds float64
}

func run(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("testee", flag.ContinueOnError)
	b := bench{}
	set.IntVar(&b.rounds, "rounds", 3, "interleaved rounds")
	set.Float64Var(&b.seconds, "seconds", 2, "of each run")
	holds := set.String("hold", "60000,250000", "connections to hold")
	if err := set.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "muxperf-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "muxperf/client", "muxperf/server").CombinedOutput(); err != nil {
		return fmt.Errorf("building: %v: %s", err, out)
	}
	if err := b.transactions(ctx); err != nil {
		return err
	}
	if err := b.queue(ctx); err != nil {
		return err
	}
	if err := b.accepts(ctx); err != nil {
		return err
	}
	for text := range strings.SplitSeq(*holds, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-hold %s: want numbers", *holds)
		}
		if err := b.hold(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// server starts our server with a testee on a free port; stop ends it.
func (b bench) server(ctx context.Context, args ...string) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	l.Close()
	return addr, b.start(ctx, addr, filepath.Join(b.dir, "server"), append([]string{"-p", "0", "-B", "127.0.0.1", "--testee", addr}, args...)...), nil
}

// start starts a program and waits until addr answers.
func (b bench) start(ctx context.Context, addr, name string, args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		return func() {}
	}
	for range 500 {
		if conn, err := net.Dial("tcp4", addr); err == nil {
			conn.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { cancel(); _ = cmd.Wait() }
}

// client runs our client and decodes its result.
func (b bench) client(ctx context.Context, args ...string) (*report.Result, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(b.dir, "client"), append([]string{"-J", "--no-control"}, args...)...).Output()
	r := &report.Result{}
	if jerr := json.Unmarshal(out, r); jerr != nil {
		return nil, errors.Join(err, jerr)
	}
	if r.Error != nil {
		return nil, r.Error
	}
	return r, nil
}

// transactions measures rr and crr against both engines, and sockperf's ping-pong, in turn.
func (b bench) transactions(ctx context.Context) error {
	addrs := map[string]string{}
	for _, engine := range []string{"epoll", "net"} {
		addr, stop, err := b.server(ctx, "--engine", engine)
		if err != nil {
			return err
		}
		defer stop()
		addrs[engine] = addr
	}
	sockperf, stop := b.sockperf(ctx)
	defer stop()
	values := map[string][]float64{}
	seconds := strconv.FormatFloat(b.seconds, 'f', -1, 64)
	for range b.rounds {
		for _, engine := range []string{"epoll", "net"} {
			for _, test := range []string{"rr", "crr"} {
				r, err := b.client(ctx, "--test", test, "-t", seconds, "--engine", engine, addrs[engine])
				if err != nil {
					return fmt.Errorf("%s against %s: %w", test, engine, err)
				}
				values[test+" "+engine] = append(values[test+" "+engine], r.Latency.PerSecond)
			}
		}
		if sockperf != "" {
			v, err := pingPong(ctx, sockperf, seconds)
			if err != nil {
				return err
			}
			values["rr sockperf"] = append(values["rr sockperf"], v)
		}
	}
	median := func(k string) float64 { return measure.Median(values[k], 0.95).Center }
	for _, test := range []string{"rr", "crr"} {
		e, n := median(test+" epoll"), median(test+" net")
		fmt.Printf("%-4s epoll %8.0f/s   net %8.0f/s   epoll:net %.2f", test, e, n, e/n)
		if s := median("rr sockperf"); test == "rr" && s > 0 {
			fmt.Printf("   sockperf %8.0f/s   epoll:sockperf %.2f", s, e/s)
		}
		fmt.Println()
	}
	return nil
}

// sockperf starts its server, if this machine has it.
func (b bench) sockperf(ctx context.Context) (port string, stop func()) {
	if _, err := exec.LookPath("sockperf"); err != nil {
		fmt.Println("sockperf is not on this machine: its column is missing")
		return "", func() {}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", func() {}
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	return port, b.start(ctx, "127.0.0.1:"+port, "sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", port)
}

// pingPong runs sockperf's client and returns round trips per second.
func pingPong(ctx context.Context, port, seconds string) (float64, error) {
	out, err := exec.CommandContext(ctx, "sockperf", "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", strings.Split(seconds, ".")[0], "-m", "14", "--full-rtt").CombinedOutput()
	m := regexp.MustCompile(`Round trip is ([0-9.]+) usec`).FindSubmatch(out)
	if err != nil || m == nil {
		return 0, fmt.Errorf("sockperf: %v: %s", err, bytes.TrimSpace(out))
	}
	us, err := strconv.ParseFloat(string(m[1]), 64)
	return 1e6 / us, err
}

// accepts compares how fast the engines take connections, each in one process.
func (b bench) accepts(ctx context.Context) error {
	const n = 15_000
	values := map[string][]float64{}
	for range b.rounds {
		for _, engine := range []string{"epoll", "net"} {
			addr, stop, err := b.server(ctx, "--engine", engine)
			if err != nil {
				return err
			}
			r, err := b.client(ctx, "--test", "hold", "--connections", strconv.Itoa(n), addr)
			stop()
			if err != nil {
				return fmt.Errorf("holding %d connections with %s: %w", n, engine, err)
			}
			values[engine] = append(values[engine], r.Hold.PerSecond)
		}
	}
	e, g := measure.Median(values["epoll"], 0.95).Center, measure.Median(values["net"], 0.95).Center
	fmt.Printf("accept %d: epoll %.0f/s   net %.0f/s   epoll:net %.2f\n", n, e, g, e/g)
	return nil
}

// hold holds many connections in as many processes as the limits need.
func (b bench) hold(ctx context.Context, n int) error {
	addr, stop, err := b.server(ctx, "--shards", strconv.Itoa(1+n/18_000))
	if err != nil {
		return err
	}
	defer stop()
	r, err := b.client(ctx, "--test", "hold", "--connections", strconv.Itoa(n), addr)
	if err != nil {
		return fmt.Errorf("holding %d connections: %w", n, err)
	}
	h := r.Hold
	fmt.Printf("hold %d: %.2f s (%.0f/s), echoed in %.2f s, memory client %.0f bytes, server %.0f bytes\n",
		n, h.Time.Seconds(), h.PerSecond, h.EchoTime.Seconds(), h.ClientMemory, h.ServerMemory)
	return nil
}
