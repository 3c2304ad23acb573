// The text form: the three columns of iperf, the receiver's row first.

package report

import (
	"fmt"
	"io"
	"strings"
	"time"
)

type text struct {
	w      io.Writer
	o      Options
	prefix string
	header bool // the column heads have been written
	both   bool // two directions: each line says which
}

// line writes one line, in one call: lines of several runs may be mixed, parts of lines never.
func (t *text) line(format string, a ...any) {
	_, _ = io.WriteString(t.w, t.prefix+strings.TrimRight(fmt.Sprintf(format, a...), " ")+"\n")
}

// row writes a row of the three columns, and a remark.
func (t *text) row(interval, transfer, bandwidth, remark string) {
	if t.both || remark != "" {
		t.line("%-17s  %-12s  %-14s  %s", interval, transfer, bandwidth, remark)
		return
	}
	t.line("%-17s  %-12s  %s", interval, transfer, bandwidth)
}

func (t *text) columns() {
	if !t.header {
		t.header = true
		t.row("Interval", "Transfer", "Bandwidth", "")
	}
}

// Start says what is about to be measured.
func (t *text) Start(r *Result) {
	t.prefix, t.header = t.o.Tag, false
	if r.Title != "" {
		t.prefix += r.Title + ":  "
	}
	t.both = len(r.Directions) > 1
	if r.Role == "server" {
		t.line("Run from %s  %s, %s", r.Peer.Address, r.Stack, r.Protocol)
	} else {
		t.line("Connected to %s  %s, %s", r.Peer.Address, r.Stack, r.Protocol)
		if s := r.Setup; s != nil {
			t.line("Set-up: %s", setupLine(s))
		}
	}
	for _, l := range r.Limits {
		t.line("The server limits %s to %s (asked for: %s)", l.Name, l.Granted, l.Asked)
	}
	if t.o.Verbose {
		t.environment(r)
	}
}

func setupLine(s *Setup) string {
	var parts []string
	for _, p := range []struct {
		name string
		d    time.Duration
	}{{"connect", s.Connect}, {"security", s.Security}, {"muxer", s.Mux}, {"stream", s.Stream}} {
		if p.d > 0 {
			parts = append(parts, p.name+" "+Time(p.d))
		}
	}
	return strings.Join(parts, ", ")
}

// Interval writes a row as it comes.
func (t *text) Interval(iv Live) {
	if t.o.Quiet {
		return
	}
	t.columns()
	var remarks []string
	if t.both {
		remarks = append(remarks, iv.Direction)
	}
	if iv.Omitted {
		remarks = append(remarks, "(omitted)")
	}
	if t.o.Verbose && iv.TCP.RTT > 0 {
		remarks = append(remarks, fmt.Sprintf("retr %d, cwnd %s, rtt %s", iv.TCP.Retransmits, t.o.Format.Transfer(iv.TCP.CongestionWnd), Time(time.Duration(iv.TCP.RTT))))
	}
	t.row(Seconds(iv.Start, iv.End), t.o.Format.Transfer(iv.Bytes), t.rate(iv.Bytes, iv.End-iv.Start), strings.Join(remarks, " "))
}

func (t *text) rate(bytes uint64, d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return t.o.Format.Rate(float64(bytes) * 8 / d.Seconds())
}

// End writes the totals, and everything that explains them.
func (t *text) End(r *Result) {
	t.both = len(r.Directions) > 1
	if len(r.Directions) > 0 {
		t.columns()
		t.line("%s", strings.Repeat("- ", 24))
	}
	for _, d := range r.Directions {
		t.direction(r, d)
	}
	if r.Latency != nil {
		t.latency(r)
	}
	if r.Hold != nil {
		t.hold(r.Hold)
	}
	if r.Repetitions != nil {
		t.repetitions(r.Repetitions)
	}
	t.processors(r)
	for _, d := range r.Diagnosis {
		t.line("%s: %s", d.Verdict, d.Evidence)
		if d.Remedy != "" {
			t.line("  %s", d.Remedy)
		}
	}
	if r.ServerOutput != nil {
		t.line("Server output:")
		(&text{w: t.w, o: t.o, prefix: "  "}).End(r.ServerOutput)
	}
	if !r.Complete {
		reason := "it was cut short"
		if r.Error != nil {
			reason = r.Error.Message
		}
		t.line("INCOMPLETE: %s", reason)
	}
}

// direction writes the receiver's row, then the sender's, then each stream's.
func (t *text) direction(r *Result, d Direction) {
	head := d.Headline()
	if head == nil {
		return
	}
	if len(head.Streams) > 1 {
		t.streams(r, d, head)
	}
	name := ""
	if t.both {
		name = d.Name + " "
	}
	t.side(name+d.MeasuredAt, head)
	if d.Receiver != nil && d.Sender != nil {
		t.side(name+"sender"+difference(d), d.Sender)
	}
	if len(head.Streams) > 1 {
		t.line("Streams started within %s of each other.", Time(head.Skew))
	}
	if p := r.Params; p.Rate > 0 && head.Window > 0 {
		t.line("Target %s, achieved %.1f %%.", t.o.Format.Rate(p.Rate), 100*head.Goodput()/p.Rate)
	}
}

func (t *text) side(remark string, s *Side) {
	if s.Verified {
		remark += ", verified"
	}
	t.row(Seconds(s.Omit, s.Omit+s.Window), t.o.Format.Transfer(s.Bytes), t.rate(s.Bytes, s.Window), remark)
}

// difference is by how much the sender's rate differs from the receiver's.
func difference(d Direction) string {
	r, s := d.Receiver.Goodput(), d.Sender.Goodput()
	if r == 0 || s == 0 {
		return ""
	}
	return fmt.Sprintf(" (%+.1f %%)", 100*(s-r)/r)
}

// streams writes a row for each stream; with many, for the extremes only.
func (t *text) streams(r *Result, d Direction, s *Side) {
	per := max(1, r.Params.Streams)
	show := len(s.Streams)
	if show > 32 && !t.o.Verbose {
		show = 8
	}
	for i, st := range s.Streams[:show] {
		id := fmt.Sprintf("stream %d", i%per)
		if r.Params.Connections > 1 {
			id = fmt.Sprintf("connection %d, %s", i/per, id)
		}
		if t.both {
			id = d.Name + " " + id
		}
		t.row(Seconds(s.Omit, s.Omit+s.Window), t.o.Format.Transfer(st.Bytes), t.rate(st.Bytes, s.Window), id)
	}
	if rest := len(s.Streams) - show; rest > 0 {
		t.line("… and %d more streams (-V lists them)", rest)
	}
}

// processors writes the CPU line.
func (t *text) processors(r *Result) {
	var parts []string
	own, other := "client", "server"
	if r.Role == "server" {
		own, other = other, own
	}
	for _, c := range []struct {
		name string
		cpu  *CPU
	}{{own, r.CPU}, {other, r.PeerCPU}} {
		if c.cpu == nil {
			continue
		}
		part := fmt.Sprintf("%s %.0f %%", c.name, c.cpu.Percent)
		if c.cpu.PerGB > 0 {
			part += fmt.Sprintf(" (%.2f s/GB)", c.cpu.PerGB)
		}
		parts = append(parts, part)
	}
	if len(parts) > 0 && (len(r.Directions) > 0 || r.Latency != nil) {
		t.line("CPU: %s", strings.Join(parts, ", "))
	}
}

func (t *text) repetitions(p *Repetitions) {
	what := "median"
	if p.Wanted > 0 {
		what = "mean"
	}
	value := func(v float64) string {
		if p.Unit == "bit/s" {
			return t.o.Format.Rate(v)
		}
		return digits(v) + " " + p.Unit
	}
	t.line("%d runs: %s %s, %.0f %% confidence %s to %s", len(p.Values), what, value(p.Center), 100*p.Level, value(p.Low), value(p.High))
	switch {
	case p.Wanted > 0 && len(p.Values) < 2:
		t.line("!!! The confidence that was asked for (width %.1f %%) was NOT reached: one run says nothing about it.", 100*p.Wanted)
	case p.Wanted > 0 && !p.Reached:
		t.line("!!! The confidence that was asked for (width %.1f %%) was NOT reached: the width is %.1f %%.", 100*p.Wanted, 100*(p.High-p.Low)/p.Center)
	}
}

// environment writes where and how, for -V.
func (t *text) environment(r *Result) {
	t.line("%s %s, %s", r.Tool.Name, r.Tool.Version, r.Started.Format(time.RFC3339))
	for _, part := range []struct {
		name   string
		values map[string]string
	}{{"", r.Environment}, {"peer ", r.PeerEnv}, {"tuning ", r.Tuning}, {"label ", r.Labels}} {
		for _, k := range sortedKeys(part.values) {
			t.line("  %s%s: %s", part.name, k, part.values[k])
		}
	}
	t.line("  reproduce: %s", strings.Join(r.Command, " "))
}
