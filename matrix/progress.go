// Progress on stderr: one line that changes on a terminal, plain lines elsewhere.

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"muxperf/matrix/cell"
	"muxperf/matrix/peer"
	"muxperf/matrix/render"
)

type progress struct {
	w        io.Writer
	terminal bool
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// say replaces the line on a terminal, or writes one.
func (p *progress) say(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if !p.terminal {
		fmt.Fprintln(p.w, text)
		return
	}
	if width, _, err := term.GetSize(int(p.w.(*os.File).Fd())); err == nil && len(text) >= width && width > 1 {
		text = text[:width-1]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
}

func (p *progress) Building(peer *peer.Peer) { p.say("building %s", peer.Name) }

func (p *progress) Running(k cell.Key, n, of int, left time.Duration) {
	if p.terminal {
		p.say("%d of %d, %s to go: %s to %s, %s", n, of, left.Round(time.Second), k.Client, k.Server, k.Stack)
	}
}

// Ran keeps a line for each repetition, so that one can read along.
func (p *progress) Ran(k cell.Key, r cell.Rep) {
	what := render.Gbit(r.Goodput) + " Gbit/s"
	if r.State != cell.OK {
		what = string(r.State) + ": " + r.Reason
	}
	p.say("%s to %s, %s %s: %s", k.Client, k.Server, k.Stack, k.Shape(), what)
	if p.terminal {
		fmt.Fprintln(p.w)
	}
}

func (p *progress) Done() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
