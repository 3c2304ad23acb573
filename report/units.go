// Numbers for people: decimal units, three digits.

package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// A Format chooses the unit of rates: "" picks one that fits; k, m, g, t are bits, K, M, G, T bytes per
// second, as in iperf3. "m" has a form of its own, that of libp2p-perf: MBytes and MBit/s.
type Format string

// Formats lists what --format takes.
func Formats() []string { return []string{"a", "k", "m", "g", "t", "K", "M", "G", "T"} }

// Transfer formats a number of bytes.
func (f Format) Transfer(n uint64) string {
	switch f {
	case "", "a":
		return si(float64(n)) + "B"
	case "m":
		return fmt.Sprintf("%.0f MBytes", float64(n)/1e6)
	}
	unit := strings.ToUpper(string(f))
	return digits(float64(n)/power(unit)) + " " + unit + "B"
}

// Rate formats bits per second.
func (f Format) Rate(bps float64) string {
	switch f {
	case "", "a":
		return si(bps) + "bit/s"
	case "m":
		return fmt.Sprintf("%.2f MBit/s", bps/1e6)
	}
	unit := strings.ToUpper(string(f))
	if string(f) == unit {
		return digits(bps/8/power(unit)) + " " + unit + "B/s"
	}
	return digits(bps/power(unit)) + " " + unit + "bit/s"
}

// power is what a unit's letter stands for. Kilo is written as in SI in the automatic form, as a capital
// letter in the others, as iperf3 has it.
func power(unit string) float64 {
	return math.Pow(1000, float64(1+strings.Index("KMGT", unit)))
}

// si writes a value with the prefix that leaves one to three digits before the point, after rounding: 999,999
// are 1.00 M.
func si(v float64) string {
	n, prefix := humanize.ComputeSI(v)
	if text := digits(n); text != "1000" {
		return text + " " + prefix
	}
	n, prefix = humanize.ComputeSI(v * 1.001)
	return digits(n) + " " + prefix
}

// digits writes three significant digits, or all before the point.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95 || a == 0:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Time formats a duration with three digits.
func Time(d time.Duration) string {
	// A value belongs to the larger unit as soon as it would be written as 1000 of the smaller.
	switch a := d.Abs(); {
	case a >= time.Second-time.Second/2000:
		return digits(d.Seconds()) + " s"
	case a >= time.Millisecond-time.Millisecond/2000:
		return digits(float64(d)/1e6) + " ms"
	case a >= time.Microsecond:
		return digits(float64(d)/1e3) + " us"
	}
	return fmt.Sprintf("%d ns", d)
}

// Seconds formats a span of the time line.
func Seconds(from, to time.Duration) string {
	return fmt.Sprintf("%.2f-%.2f s", from.Seconds(), to.Seconds())
}

// Count formats a whole number with thousands apart.
func Count(n int64) string { return humanize.Comma(n) }
