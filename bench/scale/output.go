// What is written: the table as CSV, a picture for each axis and quantity, and the README that shows them.

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muxperf/internal/environ"
)

// header names the columns of scaling.csv.
func header() []string {
	return []string{"axis", "stack", "streams", "connections", "block_bytes", "goodput_bps", "cpu_seconds_per_gb", "client_peak_bytes", "server_peak_bytes", "failure"}
}

// row is a point as a line of scaling.csv.
func (p point) row() []string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	bytes := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	return []string{p.axis, p.stack, strconv.Itoa(p.streams), strconv.Itoa(p.connections), strconv.Itoa(p.size),
		number(p.goodput), number(p.cpu), bytes(p.client), bytes(p.server), p.failure}
}

// write writes everything.
func write(dir, command string, points []point) error {
	if err := create(filepath.Join(dir, "scaling.csv"), func(w io.Writer) error { return writeCSV(w, points) }); err != nil {
		return err
	}
	if err := draw(dir, points); err != nil {
		return err
	}
	return create(filepath.Join(dir, "README.md"), func(w io.Writer) error { return readme(w, command, points) })
}

// create makes a file.
func create(name string, fill func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func writeCSV(w io.Writer, points []point) error {
	c := csv.NewWriter(w)
	if err := c.Write(header()); err != nil {
		return err
	}
	for _, p := range points {
		if err := c.Write(p.row()); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// readCSV reads what writeCSV has written.
func readCSV(name string) ([]point, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	var points []point
	for _, r := range rows[min(1, len(rows)):] {
		var v [7]float64
		for i := range v {
			if v[i], err = strconv.ParseFloat(r[2+i], 64); err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
		}
		points = append(points, point{axis: r[0], stack: r[1], streams: int(v[0]), connections: int(v[1]), size: int(v[2]),
			goodput: v[3], cpu: v[4], client: v[5], server: v[6], failure: r[9]})
	}
	return points, nil
}

// A quantity is what is drawn over an axis.
type quantity struct {
	name, title, unit string
	logY              bool
	of                func(point) float64
}

func quantities() []quantity {
	return []quantity{
		{"goodput", "Goodput", "Gbit/s", false, func(p point) float64 { return p.goodput / 1e9 }},
		{"cpu", "Processor time of both ends", "CPU s/GB", true, func(p point) float64 { return p.cpu }},
		{"memory", "Peak memory of both processes", "MB", true, func(p point) float64 { return (p.client + p.server) / 1e6 }},
	}
}

// An axis is what the points differ in.
type axis struct{ name, title, label string }

func axes() []axis {
	return []axis{
		{"streams", "over streams", "streams of one connection"},
		{"connections", "over connections", "connections, one stream each"},
		{"block", "over the size of a write", "bytes of one write"},
	}
}

// draw writes the pictures of the axes that were measured.
func draw(dir string, points []point) error {
	for _, a := range axes() {
		for _, q := range quantities() {
			c := picture(a, q, points)
			if len(c.xPlaces()) == 0 {
				continue
			}
			if err := create(filepath.Join(dir, a.name+"-"+q.name+".svg"), c.svg); err != nil {
				return err
			}
		}
	}
	return nil
}

// picture is one quantity over one axis, a line for each stack.
func picture(a axis, q quantity, points []point) chart {
	c := chart{title: q.title + " " + a.title, xLabel: a.label, yLabel: q.unit, logY: q.logY || a.name == "block" && q.name == "goodput", xTick: tick}
	if a.name == "block" {
		c.xTick = size
	}
	for _, stack := range stacks() {
		s := series{name: stack}
		for _, p := range points {
			if p.axis == a.name && p.stack == stack && p.failure == "" {
				s.points = append(s.points, [2]float64{p.x(), q.of(p)})
			}
		}
		c.lines = append(c.lines, s)
	}
	return c
}

func tick(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// size is a number of bytes in binary units.
func size(v float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if v >= u.of {
			return tick(v/u.of) + " " + u.name
		}
	}
	return tick(v) + " B"
}

// readme shows the pictures, and says where they come from.
func readme(w io.Writer, command string, points []point) error {
	env := environ.Collect()
	var b strings.Builder
	fmt.Fprintf(&b, "# Scaling\n\nHow goodput, processor time and memory go with the number of streams, of connections, and the size of a\nwrite. Client and server share one machine, so more of anything also means less of the processor for each.\n\n")
	fmt.Fprintf(&b, "```\n%s\n```\n\n%s, %s cores, %s, %s, %s. The figures are in [scaling.csv](scaling.csv).\n", command,
		env["cpu"], env["cpus"], env["kernel"], env["go"], time.Now().Format(time.DateOnly))
	fmt.Fprintf(&b, "Writes are of 128 KiB where they are not the axis; each point has a server of its own. Memory is the sum of the two\nprocesses' peaks of resident memory; what both need when they do nothing is in it.\n")
	for _, a := range axes() {
		if len(picture(a, quantities()[0], points).xPlaces()) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", strings.ToUpper(a.label[:1])+a.label[1:])
		for _, q := range quantities() {
			fmt.Fprintf(&b, "![%s %s](%s-%s.svg)\n", q.title, a.title, a.name, q.name)
		}
	}
	failures(&b, points)
	_, err := io.WriteString(w, b.String())
	return err
}

// failures lists the points without figures.
func failures(b *strings.Builder, points []point) {
	first := true
	for _, p := range points {
		if p.failure == "" {
			continue
		}
		if first {
			b.WriteString("\n## Points that are missing\n\n| Stack | Point | Reason |\n|---|---|---|\n")
			first = false
		}
		fmt.Fprintf(b, "| %s | %s %s | %s |\n", p.stack, p.axis, tick(p.x()), strings.ReplaceAll(p.failure, "|", `\|`))
	}
}
