//go:build linux

// The ledger: what was done, what was wrong, and the lines and the table that say so.

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// shownFailures bounds what is printed: one bug can fail thousands of steps.
const shownFailures = 50

// A ledger counts. It is safe for concurrent use.
type ledger struct {
	seed uint64

	mu       sync.Mutex
	warmRSS  int64
	tests    map[string]*row
	stacks   map[string]*row
	faults   map[string]*row
	total    row
	bytes    uint64
	most     usage
	failures []string
	notes    []string
}

// A row of a table.
type row struct {
	ok     int // without a fault, or in spite of one
	failed int // because of a fault, and it said so
	wrong  int
}

func newLedger(seed uint64) *ledger {
	return &ledger{seed: seed, tests: map[string]*row{}, stacks: map[string]*row{}, faults: map[string]*row{}}
}

// enter counts a step; o is nil if there was no client.
func (l *ledger) enter(st *step, o *outcome, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := st.fault.name
	if name == faultNone {
		name = "none"
	}
	for _, r := range []*row{&l.total, of(l.tests, st.test), of(l.stacks, st.stack), of(l.faults, name)} {
		switch {
		case len(wrong) > 0:
			r.wrong++
		case o != nil && o.exit != 0:
			r.failed++
		default:
			r.ok++
		}
	}
	if o != nil && o.result != nil {
		l.bytes += o.result.Bytes()
	}
	if len(wrong) > 0 {
		l.failures = append(l.failures, l.describe(st, o, wrong))
	}
}

func of(m map[string]*row, name string) *row {
	if m[name] == nil {
		m[name] = &row{}
	}
	return m[name]
}

// describe says all that it takes to look into a failure.
func (l *ledger) describe(st *step, o *outcome, wrong []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  again: go run ./bench/soak --seed %d --step %d\n", st, l.seed, st.number)
	for _, w := range wrong {
		fmt.Fprintf(&b, "  WRONG: %s\n", strings.ReplaceAll(w, "\n", "\n    "))
	}
	if o == nil {
		return b.String()
	}
	fmt.Fprintf(&b, "  %s\n  exit code %d %s\n", o.command, o.exit, o.signal)
	if o.result != nil && o.result.Error != nil {
		fmt.Fprintf(&b, "  its error: %s\n", o.result.Error)
	}
	if said := strings.TrimSpace(o.stderr); said != "" {
		fmt.Fprintf(&b, "  it said:\n    %s\n", strings.ReplaceAll(firstLines(said, 400), "\n", "\n    "))
	}
	return b.String()
}

func firstLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// excuse enters a client whose time limit ran out while the machine stood still.
func (l *ledger) excuse(st *step, o *outcome, still time.Duration) {
	l.note("excused, since even the soak itself stood still for %s meanwhile: %s: %s", still.Round(time.Second/10), st, o.result.Error)
}

// fail enters something that is wrong beyond one step.
func (l *ledger) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, what+"\n")
}

// note keeps a line for the end.
func (l *ledger) note(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, fmt.Sprintf(format, a...))
}

// seen keeps the most that the server has held, and has held while it warmed up.
func (l *ledger) seen(u usage, warming bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if warming {
		l.warmRSS = max(l.warmRSS, u.rss)
	}
	l.most = usage{max(l.most.files, u.files), max(l.most.rss, u.rss)}
}

// progress prints a line.
func (l *ledger) progress(w io.Writer, elapsed time.Duration, u usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(w, "%6s  ok %d  failed by a fault %d  WRONG %d  server: %d descriptors, %s\n",
		elapsed.Round(time.Second), l.total.ok, l.total.failed, len(l.failures), u.files, mib(u.rss))
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// print prints the tables, and then each failure.
func (l *ledger) print(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range []struct {
		title string
		rows  map[string]*row
	}{{"test", l.tests}, {"stack", l.stacks}, {"fault", l.faults}} {
		fmt.Fprintf(w, "\n%-18s %8s %18s %8s\n", t.title, "ok", "failed by a fault", "WRONG")
		names := make([]string, 0, len(t.rows))
		for name := range t.rows {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			r := t.rows[name]
			fmt.Fprintf(w, "%-18s %8d %18d %8d\n", name, r.ok, r.failed, r.wrong)
		}
	}
	fmt.Fprintf(w, "%-18s %8d %18d %8d\n\n", "all", l.total.ok, l.total.failed, l.total.wrong)
	fmt.Fprintf(w, "%.1f GB of payload; the server held at most %d descriptors and %s\n", float64(l.bytes)/1e9, l.most.files, mib(l.most.rss))
	for _, n := range l.notes {
		fmt.Fprintln(w, n)
	}
	for i, f := range l.failures {
		if i == shownFailures {
			fmt.Fprintf(w, "\n... and %d more\n", len(l.failures)-i)
			break
		}
		fmt.Fprintf(w, "\nFAILURE %d: %s", i+1, f)
	}
}

// err says whether something was wrong.
func (l *ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) > 0 {
		return fmt.Errorf("%d failures; seed %d", len(l.failures), l.seed)
	}
	return nil
}
