// matrix [run]: build the peers, measure the cells, write the tables.

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muxperf/cli"
	"muxperf/internal/environ"
	"muxperf/matrix/cell"
	"muxperf/matrix/peer"
	"muxperf/matrix/render"
	"muxperf/matrix/run"
	"muxperf/report"
)

// A measureOptions is the command line.
type measureOptions struct {
	peersDir    string
	only, skip  string
	stacks, mux string
	list        bool
	time        time.Duration
	reps        int
	streams     int
	connections int
	mode        string
	protocol    string
	outputs     []string
	servers     []string
	clients     []string
	seed        int
	timeout     time.Duration
	out         string
	noNoise     bool
	shapeGiven  bool
}

func (o *measureOptions) table() *cli.Command {
	c := cli.New("matrix", "every client against every server over every stack", "matrix [run] [flags]\n  matrix compare OLD.json NEW.json [--threshold 5]\n  matrix report FILE.json --output FILE")
	g := c.Group("Cells")
	g.Text(&o.only, "only", "", "LIST", "these peers only, with commas between; also CLIENT:SERVER, and * and ?")
	g.Text(&o.skip, "skip", "", "LIST", "leave these out")
	g.Text(&o.stacks, "stack", "", "LIST", "these stacks only, such as noise+yamux,plaintext+wisp")
	g.Text(&o.mux, "mux", "", "NAME", "stacks with this muxer only: yamux, wisp or none")
	g.Switch(&o.list, "list", "", "list peers and cells, run nothing")
	g.Texts(&o.servers, "server", "", "NAME=COMMAND", "one more server; NAME[STACK,…]=COMMAND says which stacks")
	g.Texts(&o.clients, "client", "", "NAME=COMMAND", "one more client")
	g.Text(&o.peersDir, "peers", "", "DIR", "where the peer.yaml files are, one folder each")

	g = c.Group("Measurement")
	g.Duration(&o.time, "time", "t", "SECONDS", "of each repetition")
	g.Count(&o.reps, "reps", "", "N", 1, 1000, "repetitions of each cell, after a short warm-up")
	given := func() { o.shapeGiven = true }
	g.Count(&o.streams, "parallel", "P", "N", 1, 10000, "streams per connection; Wisp has (1), (10) and (5x10) otherwise").OnSet(given)
	g.Count(&o.connections, "connections", "", "N", 1, 1000, "connections").OnSet(given)
	g.Text(&o.mode, "mode", "", "LIST", "of Wisp: flood (to a discard target), echo, or both")
	g.Text(&o.protocol, "protocol", "", "NAME", "of libp2p: /perf/1.0.0 or /perf/0.1.0 [the client's first]")
	g.Count(&o.seed, "seed", "", "N", 1, 1<<31, "of the shuffled order [random, printed]")
	g.Duration(&o.timeout, "timeout", "", "SECONDS", "for a client beyond its time")
	g.Switch(&o.noNoise, "no-noise", "", "do not measure a cell of each stack twice")

	g = c.Group("Output")
	g.Texts(&o.outputs, "output", "", "FILE", "write .json, .md, .csv or .html, by the ending")
	g.Text(&o.out, "out", "", "DIR", "folder of logs [out/ and the time]")
	c.Alias("streams", "parallel")
	c.Examples = []cli.Example{
		{Command: "matrix -t 10 --reps 5 --output result.html", Does: "everything, as a report"},
		{Command: "matrix --only muxperf,go-libp2p --stack noise+yamux -t 2", Does: "four cells, quickly"},
		{Command: "matrix --mux wisp --server 'mine=./wispd -p {port}'", Does: "a Wisp server of your own among the others"},
	}
	c.Notes = []string{"Exit codes: 0 every cell is ok, unsupported or unavailable; 1 a cell failed; 2 usage; 7 compare found a loss past the threshold; 130 interrupted."}
	return c
}

// measure is the whole of a run.
func measure(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := &measureOptions{peersDir: "peers", time: 10 * time.Second, reps: 5, streams: 1, connections: 1, mode: "flood", timeout: 30 * time.Second}
	rest, err := o.table().Parse(args, stdout)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return cli.Errorf("%q is one argument too many; matrix --help lists the flags", rest[0])
	}
	for _, f := range o.outputs {
		if _, ok := writers()[filepath.Ext(f)]; !ok {
			return cli.Errorf("--output %s: want a name that ends in .json, .md, .csv or .html", f)
		}
	}
	peers, err := o.peers()
	if err != nil {
		return cli.Errorf("%v", err)
	}
	if o.seed == 0 {
		o.seed = 1 + rand.IntN(1<<30)
	}
	sel, err := o.selection()
	if err != nil {
		return err
	}
	peers = involved(peers, sel)
	if o.list {
		return list(stdout, peers, sel)
	}
	return o.run(ctx, args, peers, sel, stdout, stderr)
}

// run builds, measures and prints.
func (o *measureOptions) run(ctx context.Context, args []string, peers []*peer.Peer, sel run.Selection, stdout, stderr io.Writer) error {
	out := o.out
	if out == "" {
		out = filepath.Join("out", time.Now().Format("20060102-150405.000"))
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("making the folder of logs: %w", err)
	}
	m := &run.Runner{Out: out, Seconds: o.time.Seconds(), Reps: o.reps, Seed: uint64(o.seed), Timeout: o.timeout, Protocol: o.protocol,
		Strict: os.Getenv("CI") == "true", Progress: newProgress(stderr)}
	if err := m.Prepare(ctx, peers); err != nil {
		return err
	}
	for range 3 {
		raw, err := run.RawTCP(ctx, 300*time.Millisecond)
		if err != nil {
			return fmt.Errorf("measuring raw TCP: %w", err)
		}
		m.RawTCP = max(m.RawTCP, raw)
	}
	cells := run.Cells(peers, sel)
	if len(cells) == 0 {
		return cli.Errorf("no cell is left: --list shows what there is")
	}
	fmt.Fprintf(stdout, "%d cells, %d repetitions of %s in shuffled order (--seed %d), logs in %s\n", len(cells), o.reps, o.time, o.seed, out)
	began := time.Now()
	m.Measure(ctx, cells)
	result := &cell.Matrix{SchemaVersion: cell.SchemaVersion, Started: began, Command: append([]string{"matrix"}, args...),
		Environment: environ.Collect(), Seed: uint64(o.seed), Seconds: o.time.Seconds(), Repetitions: o.reps, RawTCP: m.RawTCP, Cells: cells}
	for _, p := range peers {
		result.Peers = append(result.Peers, cell.Peer{Name: p.Name, About: p.About, Version: p.Versions, Unavailable: p.Unavailable})
	}
	result.MeasureNoise()
	if err := render.Text(stdout, result); err != nil {
		return err
	}
	if err := write(result, append([]string{filepath.Join(out, "result.json")}, o.outputs...)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := result.Bad(); n > 0 {
		return report.Errorf(report.KindFailed, "the reasons are above, the logs in "+out, "%d of %d cells failed", n, len(cells))
	}
	return nil
}

// peers are those of the folder and of the command line.
func (o *measureOptions) peers() ([]*peer.Peer, error) {
	peers, err := peer.Load(o.peersDir)
	if err != nil {
		return nil, err
	}
	for _, t := range o.servers {
		if peers, err = join(peers, "server", t); err != nil {
			return nil, err
		}
	}
	for _, t := range o.clients {
		if peers, err = join(peers, "client", t); err != nil {
			return nil, err
		}
	}
	// Ours first, then by kind as loaded: tables begin with what one looks for.
	slices.SortStableFunc(peers, func(a, b *peer.Peer) int {
		first := func(p *peer.Peer) int {
			if p.Name == "muxperf" {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	return peers, nil
}

// join adds a peer of the command line. A server and a client of one name that the command line gives are
// one peer; the names of the folder are taken.
func join(peers []*peer.Peer, role, text string) ([]*peer.Peer, error) {
	p, err := peer.Given(role, text)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(peers, func(q *peer.Peer) bool { return q.Name == p.Name })
	switch {
	case i < 0:
		return append(peers, p), nil
	case peers[i].Merge(p):
		return peers, nil
	}
	return nil, fmt.Errorf("--%s %s: there is a peer of that name with that role already", role, text)
}

// selection is what the flags leave.
func (o *measureOptions) selection() (run.Selection, error) {
	s := run.Selection{Only: split(o.only), Skip: split(o.skip), Stacks: split(o.stacks), Modes: split(o.mode), Noise: !o.noNoise,
		Shapes:     []run.Shape{{Connections: o.connections, Streams: o.streams}},
		WispShapes: []run.Shape{{Connections: 1, Streams: 1}, {Connections: 1, Streams: 10}, {Connections: 5, Streams: 10}}}
	if o.shapeGiven {
		s.WispShapes = s.Shapes
	}
	for _, m := range s.Modes {
		if m != "flood" && m != "echo" {
			return s, cli.Errorf("--mode %s: want flood, echo, or flood,echo", o.mode)
		}
	}
	all := run.Stacks()
	for _, st := range s.Stacks {
		if !slices.Contains(all, st) {
			return s, cli.Errorf("--stack %s: want some of %s", st, strings.Join(all, ", "))
		}
	}
	if o.mux != "" {
		if len(s.Stacks) == 0 {
			s.Stacks = all
		}
		s.Stacks = slices.DeleteFunc(slices.Clone(s.Stacks), func(st string) bool { return !strings.HasSuffix(st, "+"+o.mux) })
		if len(s.Stacks) == 0 {
			return s, cli.Errorf("--mux %s: want yamux, wisp or none", o.mux)
		}
	}
	return s, nil
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// involved drops the peers that no cell needs, so that they are not built.
func involved(peers []*peer.Peer, sel run.Selection) []*peer.Peer {
	used := map[string]bool{}
	for _, c := range run.Cells(peers, sel) {
		used[c.Client], used[c.Server] = true, true
	}
	return slices.DeleteFunc(slices.Clone(peers), func(p *peer.Peer) bool { return !used[p.Name] })
}

// list prints peers and cells.
func list(w io.Writer, peers []*peer.Peer, sel run.Selection) error {
	for _, p := range peers {
		note := ""
		if missing := p.Missing(); len(missing) > 0 {
			note = "  (unavailable: " + strings.Join(missing, ", ") + " not found)"
		}
		fmt.Fprintf(w, "%-20s %s%s\n", p.Name, p.About, note)
	}
	fmt.Fprintln(w)
	for _, c := range run.Cells(peers, sel) {
		if c.Copy > 0 {
			continue
		}
		note := ""
		if c.State != "" {
			note = "  " + string(c.State) + ": " + c.Reason
		}
		fmt.Fprintf(w, "%-16s %-5s %-6s %s to %s%s\n", c.Stack, c.Mode, c.Shape(), c.Client, c.Server, note)
	}
	return nil
}

// writers are the forms of --output, by the ending.
func writers() map[string]func(io.Writer, *cell.Matrix) error {
	return map[string]func(io.Writer, *cell.Matrix) error{
		".json": func(w io.Writer, m *cell.Matrix) error { return m.Write(w) },
		".md":   render.Markdown, ".csv": render.CSV, ".html": render.HTML, ".txt": render.Text,
	}
}

// write writes the files.
func write(m *cell.Matrix, files []string) error {
	for _, name := range files {
		f, err := os.Create(name)
		if err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
		err = writers()[filepath.Ext(name)](f, m)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
