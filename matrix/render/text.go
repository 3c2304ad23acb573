// Package render writes a matrix for people and for programs: text, markdown, CSV and HTML are pure
// functions of the model.
package render

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"muxperf/matrix/cell"
)

// A grid is the cells of one stack, mode and shape: clients down, servers across.
type grid struct {
	title   string
	clients []string
	servers []string
	cells   map[[2]string]*cell.Cell
}

// grids splits a matrix into tables, in the order of its cells.
func grids(m *cell.Matrix) []*grid {
	type id struct{ stack, mode, shape string }
	var order []id
	all := map[id]*grid{}
	for _, c := range m.Cells {
		if c.Copy > 0 {
			continue
		}
		k := id{c.Stack, c.Mode, c.Shape()}
		g := all[k]
		if g == nil {
			g = &grid{title: title(c), cells: map[[2]string]*cell.Cell{}}
			all[k] = g
			order = append(order, k)
		}
		if !slices.Contains(g.clients, c.Client) {
			g.clients = append(g.clients, c.Client)
		}
		if !slices.Contains(g.servers, c.Server) {
			g.servers = append(g.servers, c.Server)
		}
		g.cells[[2]string{c.Client, c.Server}] = c
	}
	out := make([]*grid, len(order))
	for i, k := range order {
		out[i] = all[k]
	}
	return out
}

// title names a table.
func title(c *cell.Cell) string {
	t := c.Stack
	if c.Mode != "" {
		t += ", " + c.Mode
	}
	if c.Mode != "" || c.Streams != 1 || c.Connections != 1 {
		t += " " + c.Shape()
	}
	return t
}

// value is a cell in a table: its rate, or why there is none.
func value(c *cell.Cell) string {
	switch {
	case c == nil:
		return ""
	case c.State == cell.OK:
		return Gbit(c.Median)
	case c.State == cell.Noisy:
		return "~" + Gbit(c.Median)
	}
	return string(c.State)
}

// Gbit writes a rate in Gbit/s, with three digits.
func Gbit(bps float64) string {
	g := bps / 1e9
	switch {
	case g >= 99.95:
		return fmt.Sprintf("%.0f", g)
	case g >= 9.995:
		return fmt.Sprintf("%.1f", g)
	case g >= 0.0995:
		return fmt.Sprintf("%.2f", g)
	}
	return fmt.Sprintf("%.3f", g)
}

// table writes rows as text columns, the first one left and the others right.
func table(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-len([]rune(c)))
			if i == 0 {
				b.WriteString(c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// rows are a grid with its heads.
func (g *grid) rows() [][]string {
	rows := [][]string{append([]string{"client \\ server"}, g.servers...)}
	for _, c := range g.clients {
		row := []string{c}
		for _, s := range g.servers {
			row = append(row, value(g.cells[[2]string{c, s}]))
		}
		rows = append(rows, row)
	}
	return rows
}

// Text writes the tables for a terminal.
func Text(w io.Writer, m *cell.Matrix) error {
	for _, g := range grids(m) {
		fmt.Fprintf(w, "\n%s, Gbit/s client to server\n\n", g.title)
		table(w, g.rows())
	}
	if len(m.Noise) > 0 {
		fmt.Fprintf(w, "\nThe machine's own noise (a cell measured as if it were two)\n\n")
		rows := [][]string{{"cell", "ratio", "p"}}
		for _, n := range m.Noise {
			rows = append(rows, []string{n.Of.Client + " to " + n.Of.Server + ", " + n.Of.Stack, fmt.Sprintf("%.3f", n.Ratio), fmt.Sprintf("%.2f", n.P)})
		}
		table(w, rows)
	}
	notes(w, m, "  ")
	return nil
}

// notes lists the cells that are not ok, with their reasons, and the peers that did not take part.
func notes(w io.Writer, m *cell.Matrix, indent string) {
	first := true
	for _, c := range m.Cells {
		if c.State == cell.OK || c.State == cell.Unavailable {
			continue
		}
		if first {
			fmt.Fprintf(w, "\nCells that are not plain numbers\n\n")
			first = false
		}
		fmt.Fprintf(w, "%s%s to %s, %s: %s: %s", indent, c.Client, c.Server, title(c), c.State, c.Reason)
		if c.Log != "" {
			fmt.Fprintf(w, " (%s)", c.Log)
		}
		fmt.Fprintln(w)
	}
	for _, p := range m.Peers {
		if p.Unavailable != "" {
			fmt.Fprintf(w, "%s%s does not take part: %s\n", indent, p.Name, p.Unavailable)
		}
	}
}

// Markdown writes the tables for an issue.
func Markdown(w io.Writer, m *cell.Matrix) error {
	fmt.Fprintf(w, "%s, %s, %s cores, %s: median of %d x %g s, Gbit/s from client to server.\n",
		m.Environment["cpu"], m.Environment["kernel"], m.Environment["cpus"], m.Started.Format("2006-01-02"), m.Repetitions, m.Seconds)
	for _, g := range grids(m) {
		fmt.Fprintf(w, "\n### %s\n\n", g.title)
		for i, r := range g.rows() {
			fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
			if i == 0 {
				fmt.Fprintf(w, "|%s%s\n", "---|", strings.Repeat("--:|", len(r)-1))
			}
		}
	}
	fmt.Fprintf(w, "\n| Peer | Version |\n|---|---|\n")
	for _, p := range m.Peers {
		v := p.Version
		if p.Unavailable != "" {
			v = "did not take part: " + p.Unavailable
		}
		fmt.Fprintf(w, "| %s | %s |\n", p.Name, v)
	}
	for _, n := range m.Noise {
		fmt.Fprintf(w, "\nNoise: %s to %s over %s against itself is %.3f (p = %.2f).", n.Of.Client, n.Of.Server, n.Of.Stack, n.Ratio, n.P)
	}
	fmt.Fprintln(w)
	notes(w, m, "- ")
	return nil
}

// CSV writes a line for each repetition.
func CSV(w io.Writer, m *cell.Matrix) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"client", "server", "stack", "mode", "connections", "streams", "copy", "repetition", "state", "protocol", "sent_bytes",
		"received_bytes", "seconds", "goodput_bps", "measured_at", "client_cpu_seconds", "server_cpu_seconds", "reason"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, x := range m.Cells {
		for i, r := range x.Reps {
			_ = c.Write([]string{x.Client, x.Server, x.Stack, x.Mode, strconv.Itoa(x.Connections), strconv.Itoa(x.Streams), strconv.Itoa(x.Copy),
				strconv.Itoa(i + 1), string(r.State), r.Protocol, strconv.FormatUint(r.Sent, 10), strconv.FormatUint(r.Received, 10), num(r.Seconds),
				num(r.Goodput), r.MeasuredAt, num(r.ClientCPU), num(r.ServerCPU), r.Reason})
		}
		if len(x.Reps) == 0 {
			_ = c.Write([]string{x.Client, x.Server, x.Stack, x.Mode, strconv.Itoa(x.Connections), strconv.Itoa(x.Streams), strconv.Itoa(x.Copy),
				"0", string(x.State), "", "0", "0", "0", "0", "", "0", "0", x.Reason})
		}
	}
	c.Flush()
	return c.Error()
}

// Comparison writes what Compare found.
func Comparison(w io.Writer, all []cell.Comparison) {
	rows := [][]string{{"cell", "old", "new", "ratio", "p", ""}}
	for _, c := range all {
		name := c.Client + " to " + c.Server + ", " + title(&cell.Cell{Key: c.Key})
		if c.Note != "" {
			rows = append(rows, []string{name, gbitOr(c.Old), gbitOr(c.New), "", "", string(c.Verdict) + ": " + c.Note})
			continue
		}
		rows = append(rows, []string{name, Gbit(c.Old), Gbit(c.New), fmt.Sprintf("%.3f", c.Ratio), fmt.Sprintf("%.3f", c.P), string(c.Verdict)})
	}
	table(w, rows)
}

// gbitOr is a rate, or nothing where there is none.
func gbitOr(bps float64) string {
	if bps == 0 {
		return ""
	}
	return Gbit(bps)
}
