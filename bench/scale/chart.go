// A line chart as plain SVG: a light ground, a logarithmic x axis with a tick at each measured place, a y axis
// that begins at zero or is logarithmic, and a legend. It knows nothing of what is drawn.

package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// A chart is one picture.
type chart struct {
	title, xLabel, yLabel string
	logY                  bool
	xTick                 func(float64) string
	lines                 []series
}

// A series is one line; its points are in the order of x.
type series struct {
	name   string
	points [][2]float64
}

// The picture in units of the viewBox, and the frame of the axes in it.
const (
	width, height            = 720.0, 420.0
	left, right, top, bottom = 80.0, 700.0, 72.0, 360.0
)

// colours are told apart in print and by most who see colours differently (Okabe and Ito).
func colours() []string { return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"} }

// svg draws the chart.
func (c chart) svg(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" font-family="sans-serif" font-size="13" fill="#222">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#fff"/>`+"\n", width, height)
	text(&b, width/2, 26, "middle", 17, c.title)
	x, y := c.xScale(), c.yScale()
	for _, v := range c.xPlaces() {
		fmt.Fprintf(&b, `<path d="M%.1f %g V%g" stroke="#ddd"/>`+"\n", x(v), top, bottom)
		text(&b, x(v), bottom+20, "middle", 13, c.xTick(v))
	}
	for _, v := range c.yTicks() {
		fmt.Fprintf(&b, `<path d="M%g %.1f H%g" stroke="#ddd"/>`+"\n", left, y(v), right)
		text(&b, left-8, y(v)+4, "end", 13, fmt.Sprint(v))
	}
	fmt.Fprintf(&b, `<path d="M%g %g V%g H%g" fill="none" stroke="#222"/>`+"\n", left, top, bottom, right)
	text(&b, (left+right)/2, height-14, "middle", 14, c.xLabel)
	fmt.Fprintf(&b, `<g transform="translate(22 %g) rotate(-90)">`, (top+bottom)/2)
	text(&b, 0, 0, "middle", 14, c.yLabel)
	b.WriteString("</g>\n")
	for i, s := range c.lines {
		c.line(&b, i, s, x, y)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// line draws a series and its entry in the legend.
func (c chart) line(b *strings.Builder, i int, s series, x, y func(float64) float64) {
	colour := colours()[i%len(colours())]
	var path strings.Builder
	for _, p := range s.points {
		fmt.Fprintf(&path, "%.1f,%.1f ", x(p[0]), y(p[1]))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5"/>`+"\n", strings.TrimSpace(path.String()), colour)
	for _, p := range s.points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s: %s, %.3g</title></circle>`+"\n",
			x(p[0]), y(p[1]), colour, html.EscapeString(s.name), html.EscapeString(c.xTick(p[0])), p[1])
	}
	at := left + float64(i)*(right-left)/float64(len(c.lines))
	fmt.Fprintf(b, `<path d="M%.1f 50 h26" stroke="%s" stroke-width="2.5"/><circle cx="%.1f" cy="50" r="4" fill="%s"/>`, at, colour, at+13, colour)
	text(b, at+34, 55, "start", 13, s.name)
}

func text(b *strings.Builder, x, y float64, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(s))
}

// xPlaces are all x of all series, once each.
func (c chart) xPlaces() []float64 {
	var out []float64
	for _, s := range c.lines {
		for _, p := range s.points {
			out = append(out, p[0])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// xScale maps the places to the frame, with a margin inside it.
func (c chart) xScale() func(float64) float64 {
	places := c.xPlaces()
	if len(places) == 0 {
		return func(float64) float64 { return left }
	}
	low, high := math.Log(places[0]), math.Log(places[len(places)-1])
	span := math.Max(high-low, 1e-9)
	return func(v float64) float64 { return left + 24 + (right-left-48)*(math.Log(v)-low)/span }
}

// yRange is from the least to the greatest of all values.
func (c chart) yRange() (low, high float64) {
	low = math.Inf(1)
	for _, s := range c.lines {
		for _, p := range s.points {
			low, high = math.Min(low, p[1]), math.Max(high, p[1])
		}
	}
	return low, high
}

// yTicks are round numbers that span the values: powers of ten, or five to ten steps from zero.
func (c chart) yTicks() []float64 {
	low, high := c.yRange()
	if high <= 0 || math.IsInf(low, 1) {
		return []float64{0, 1}
	}
	var out []float64
	if c.logY && low > 0 {
		first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
		for e := first; e <= math.Max(last, first+1); e++ {
			out = append(out, math.Pow10(int(e)))
		}
		return out
	}
	step := math.Pow10(int(math.Floor(math.Log10(high / 5))))
	for _, m := range []float64{1, 2, 5, 10} {
		if high/(m*step) <= 8 {
			step *= m
			break
		}
	}
	for i := 0.0; ; i++ {
		out = append(out, math.Round(i*step*1e6)/1e6)
		if i*step >= high {
			return out
		}
	}
}

// yScale maps the span of the ticks to the frame.
func (c chart) yScale() func(float64) float64 {
	ticks := c.yTicks()
	low, high := ticks[0], ticks[len(ticks)-1]
	if low > 0 {
		span := math.Log(high / low)
		return func(v float64) float64 { return bottom - (bottom-top)*math.Log(v/low)/span }
	}
	return func(v float64) float64 { return bottom - (bottom-top)*v/high }
}
