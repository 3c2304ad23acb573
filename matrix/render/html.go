// The report: one file that needs nothing else. Heat maps, each cell's repetitions and time line, processor
// time at both ends, the environment, and the whole result as JSON for `matrix report`.

package render

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"muxperf/matrix/cell"
)

//go:embed report.html
var page string

// HTML writes the report.
func HTML(w io.Writer, m *cell.Matrix) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"gbit": Gbit, "title": title, "join": strings.Join, "percent": func(v float64) string { return fmt.Sprintf("%+.1f %%", 100*(v-1)) },
		"cpu": func(v float64) string { return fmt.Sprintf("%.2f", v) },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("the report's template: %w", err)
	}
	var doc bytes.Buffer
	if err := json.NewEncoder(&doc).Encode(m); err != nil {
		return err
	}
	return t.Execute(w, view{Matrix: m, Grids: heatMaps(m), Details: details(m), Env: environment(m), JSON: template.JS(doc.Bytes())})
}

// A view is what the template sees.
type view struct {
	*cell.Matrix
	Grids   []heatMap
	Details []detail
	Env     [][2]string
	JSON    template.JS
}

// A heatMap is one table; the colour of a cell is its share of the table's best.
type heatMap struct {
	Title   string
	Servers []string
	Rows    []heatRow
}

type heatRow struct {
	Client string
	Cells  []heatCell
}

type heatCell struct {
	ID, Text, Note, Class string
	Heat                  template.CSS // 0 to 100
}

func heatMaps(m *cell.Matrix) []heatMap {
	var out []heatMap
	for _, g := range grids(m) {
		best := 0.0
		for _, c := range g.cells {
			best = math.Max(best, c.Median)
		}
		h := heatMap{Title: g.title, Servers: g.servers}
		for _, client := range g.clients {
			row := heatRow{Client: client}
			for _, server := range g.servers {
				row.Cells = append(row.Cells, heat(g.cells[[2]string{client, server}], best))
			}
			h.Rows = append(h.Rows, row)
		}
		out = append(out, h)
	}
	return out
}

func heat(c *cell.Cell, best float64) heatCell {
	if c == nil {
		return heatCell{Class: "none"}
	}
	h := heatCell{ID: id(c), Text: value(c), Note: c.Reason, Class: strings.ToLower(string(c.State)), Heat: "0"}
	if c.Median > 0 && best > 0 {
		h.Heat = template.CSS(fmt.Sprintf("%.0f", 100*c.Median/best))
	}
	return h
}

// id is a cell's anchor.
func id(c *cell.Cell) string { return strings.ReplaceAll(c.Key.String(), ".", "-") }

// A detail is one cell at length.
type detail struct {
	*cell.Cell
	ID, Title   string
	Dots        []dot    // repetitions, on a scale of 0 to 100
	Low, High   float64  // of the interval, on it
	Width       float64  // High - Low
	Lines       []string // time lines of the repetitions, as points of a polyline
	Peak        string   // of the time lines
	ClientShare float64  // of the processor time, percent
}

type dot struct {
	X    float64
	Text string
}

func details(m *cell.Matrix) []detail {
	var out []detail
	for _, c := range m.Cells {
		d := detail{Cell: c, ID: id(c), Title: fmt.Sprintf("%s to %s, %s", c.Client, c.Server, title(c))}
		if c.Copy > 0 {
			d.Title += " (again)"
		}
		top := 0.0
		for _, r := range c.Reps {
			top = math.Max(top, r.Goodput)
		}
		if top > 0 {
			top *= 1.05
			for i, r := range c.Reps {
				d.Dots = append(d.Dots, dot{100 * r.Goodput / top, fmt.Sprintf("repetition %d: %s Gbit/s", i+1, Gbit(r.Goodput))})
			}
			d.Low, d.High = 100*c.Low/top, 100*c.High/top
			d.Width = d.High - d.Low
		}
		d.Lines, d.Peak = timeLines(c)
		if sum := c.ClientCPU + c.ServerCPU; sum > 0 {
			d.ClientShare = 100 * c.ClientCPU / sum
		}
		out = append(out, d)
	}
	return out
}

// timeLines draws the intervals of each repetition into 300 by 60.
func timeLines(c *cell.Cell) (lines []string, peak string) {
	top, end := 0.0, 0.0
	rates := make([][][2]float64, 0, len(c.Reps))
	for _, r := range c.Reps {
		var points [][2]float64
		last := 0.0
		for _, iv := range r.Intervals {
			if span := iv.End - last; span > 0.05 {
				rate := float64(iv.Bytes) * 8 / span
				points = append(points, [2]float64{iv.End, rate})
				top, end = math.Max(top, rate), math.Max(end, iv.End)
			}
			last = iv.End
		}
		if len(points) > 1 {
			rates = append(rates, points)
		}
	}
	if top == 0 {
		return nil, ""
	}
	for _, points := range rates {
		var b strings.Builder
		for _, p := range points {
			fmt.Fprintf(&b, "%.1f,%.1f ", 300*p[0]/end, 58-56*p[1]/top)
		}
		lines = append(lines, strings.TrimSpace(b.String()))
	}
	return lines, Gbit(top)
}

func environment(m *cell.Matrix) [][2]string {
	out := [][2]string{{"started", m.Started.Format("2006-01-02 15:04:05 MST")}, {"command", strings.Join(m.Command, " ")},
		{"seed", fmt.Sprint(m.Seed)}, {"raw TCP", Gbit(m.RawTCP) + " Gbit/s"}}
	for _, k := range slices.Sorted(maps.Keys(m.Environment)) {
		out = append(out, [2]string{k, m.Environment[k]})
	}
	return out
}
