// Package cell is the model of a matrix: its cells, what each repetition gave, and what the repetitions
// amount to. It is pure; renderers and comparisons are made of it.
package cell

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"muxperf/measure"
)

// SchemaVersion of the JSON form.
const SchemaVersion = 1

// A State is what a cell came to.
type State string

// The states.
const (
	OK          State = "ok"
	Noisy       State = "noisy"       // measured, but the interval is wide
	Unsupported State = "unsupported" // declared, or exit code 127
	Unavailable State = "unavailable" // a peer that could not be built here
	Refused     State = "refused"     // the server said no
	Failed      State = "failed"      // an end failed, or the ends disagree
	DNF         State = "DNF"         // did not finish in time
	Suspect     State = "suspect"     // a number that cannot be
)

// Bad reports whether a state is a failure of the run.
func (s State) Bad() bool { return s == Refused || s == Failed || s == DNF || s == Suspect }

// A Key names a cell.
type Key struct {
	Client      string `json:"client"`
	Server      string `json:"server"`
	Stack       string `json:"stack"`
	Mode        string `json:"mode,omitempty"` // of Wisp: flood or echo
	Streams     int    `json:"streams"`
	Connections int    `json:"connections"`
	Copy        int    `json:"copy,omitempty"` // 1 for the second copy of a cell, which shows the noise
}

// String is the key in one word, for logs.
func (k Key) String() string {
	s := fmt.Sprintf("%s.%s.%s.%dx%d", k.Client, k.Server, strings.ReplaceAll(k.Stack, "+", "-"), k.Connections, k.Streams)
	if k.Mode != "" {
		s += "." + k.Mode
	}
	if k.Copy > 0 {
		s += ".again"
	}
	return s
}

// Shape is streams and connections as WispMark writes them: (10), (5x10).
func (k Key) Shape() string {
	if k.Connections == 1 {
		return fmt.Sprintf("(%d)", k.Streams)
	}
	return fmt.Sprintf("(%dx%d)", k.Connections, k.Streams)
}

// A Rep is one run of a cell.
type Rep struct {
	At         time.Time  `json:"at"`
	State      State      `json:"state"`
	Reason     string     `json:"reason,omitempty"`
	Protocol   string     `json:"protocol,omitempty"`
	Sent       uint64     `json:"sent_bytes"`               // by the client
	Received   uint64     `json:"received_bytes"`           // by the server, or by the target behind it
	Returned   uint64     `json:"returned_bytes,omitempty"` // echoed, as the client counted it
	Seconds    float64    `json:"seconds"`
	MeasuredAt string     `json:"measured_at"` // receiver or sender
	Setup      float64    `json:"setup_seconds,omitempty"`
	Goodput    float64    `json:"goodput_bps"` // one way
	ClientCPU  float64    `json:"client_cpu_seconds"`
	ServerCPU  float64    `json:"server_cpu_seconds"`
	Intervals  []Interval `json:"intervals,omitempty"`
	Log        string     `json:"log,omitempty"`
}

// An Interval is a point of a run's time line.
type Interval struct {
	End   float64 `json:"end_seconds"`
	Bytes uint64  `json:"bytes"`
}

// A Cell is a key with its repetitions and what they amount to.
type Cell struct {
	Key
	State     State   `json:"state"`
	Reason    string  `json:"reason,omitempty"`
	Log       string  `json:"log,omitempty"`
	Median    float64 `json:"median_bps"`
	Low       float64 `json:"low_bps"`
	High      float64 `json:"high_bps"`
	ClientCPU float64 `json:"client_cpu_seconds_per_gb"`
	ServerCPU float64 `json:"server_cpu_seconds_per_gb"`
	Protocol  string  `json:"protocol,omitempty"`
	Reps      []Rep   `json:"repetitions"`
}

// A Peer is an implementation as the matrix found it.
type Peer struct {
	Name        string `json:"name"`
	About       string `json:"about,omitempty"`
	Version     string `json:"version,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
}

// A Matrix is a whole run.
type Matrix struct {
	SchemaVersion int               `json:"schema_version"`
	Started       time.Time         `json:"started"`
	Command       []string          `json:"command"`
	Environment   map[string]string `json:"environment"`
	Seed          uint64            `json:"seed"`
	Seconds       float64           `json:"seconds"` // of each repetition
	Repetitions   int               `json:"repetitions"`
	RawTCP        float64           `json:"raw_tcp_bps"` // the plausibility guard's yardstick
	Peers         []Peer            `json:"peers"`
	Cells         []*Cell           `json:"cells"`
	Noise         []Noise           `json:"noise,omitempty"`
}

// A Noise is a cell measured as if it were two: any difference is the machine's.
type Noise struct {
	Of    Key     `json:"of"`
	Ratio float64 `json:"ratio"` // of the two medians
	P     float64 `json:"p_value"`
}

// noisyWidth is the width of the interval, as a share of the median, from which a cell is noisy.
const noisyWidth = 0.25

// Summarise fills in what the repetitions amount to.
func (c *Cell) Summarise() {
	var rates []float64
	var clientCPU, serverCPU []float64
	for _, r := range c.Reps {
		if r.State != OK {
			c.State, c.Reason, c.Log = r.State, r.Reason, r.Log
			continue
		}
		c.Protocol = r.Protocol
		rates = append(rates, r.Goodput)
		gb := float64(max(r.Received, r.Sent)) / 1e9
		if gb > 0 {
			clientCPU, serverCPU = append(clientCPU, r.ClientCPU/gb), append(serverCPU, r.ServerCPU/gb)
		}
	}
	if len(rates) == 0 {
		return
	}
	s := measure.Median(rates, 0.95)
	c.Median, c.Low, c.High = s.Center, s.Low, s.High
	c.ClientCPU, c.ServerCPU = measure.Median(clientCPU, 0.95).Center, measure.Median(serverCPU, 0.95).Center
	if c.State != "" && c.State != OK {
		return // one repetition that failed is not hidden by the others
	}
	c.State = OK
	if len(rates) > 1 && s.Width() > noisyWidth {
		c.State = Noisy
		c.Reason = fmt.Sprintf("the repetitions spread over %.0f %% of their median", 100*s.Width())
	}
}

// Rates are the goodputs of the repetitions that were good.
func (c *Cell) Rates() []float64 {
	var out []float64
	for _, r := range c.Reps {
		if r.State == OK {
			out = append(out, r.Goodput)
		}
	}
	return out
}

// Find returns the cell with a key; nil if there is none.
func (m *Matrix) Find(k Key) *Cell {
	for _, c := range m.Cells {
		if c.Key == k {
			return c
		}
	}
	return nil
}

// Bad counts the cells that failed.
func (m *Matrix) Bad() int {
	n := 0
	for _, c := range m.Cells {
		if c.State.Bad() {
			n++
		}
	}
	return n
}

// Write encodes the matrix.
func (m *Matrix) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(m)
}

// Read decodes a matrix that Write has written.
func Read(r io.Reader) (*Matrix, error) {
	m := &Matrix{}
	if err := json.NewDecoder(r).Decode(m); err != nil {
		return nil, fmt.Errorf("reading a matrix: %w", err)
	}
	if m.SchemaVersion != SchemaVersion {
		return nil, fmt.Errorf("the matrix has schema version %d, this program reads %d", m.SchemaVersion, SchemaVersion)
	}
	return m, nil
}
