// Package report holds the one model of a result, and renderers that are pure functions of it.
//
// Every test on either end becomes a Result. Its JSON form is the program's native output
// (docs/result.schema.json); the other forms are derived from it. Nothing here measures, and nothing
// that measures knows these forms.
package report

import (
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

// SchemaVersion changes when a field changes its meaning or goes away.
const SchemaVersion = 1

// The tests.
const (
	Flood = "flood"
	RR    = "rr"
	CRR   = "crr"
	Open  = "open"
	Hold  = "hold"
)

// A Result is what one run gave, as one end tells it.
type Result struct {
	SchemaVersion int                 `json:"schema_version"`
	Tool          Tool                `json:"tool"`
	Role          string              `json:"role"` // "client" or "server"
	Test          string              `json:"test"`
	Protocol      string              `json:"protocol"` // stream protocol
	Title         string              `json:"title,omitempty"`
	Labels        map[string]string   `json:"labels,omitempty"`
	Extra         string              `json:"extra_data,omitempty"`
	Started       time.Time           `json:"started"`
	Command       []string            `json:"command"`                // what reproduces it, secrets left out
	PeerCommand   string              `json:"peer_command,omitempty"` // what reproduces the other end, if known
	Environment   map[string]string   `json:"environment,omitempty"`
	PeerEnv       map[string]string   `json:"peer_environment,omitempty"`
	Stack         transport.Stack     `json:"stack"`
	Tuning        map[string]string   `json:"tuning,omitempty"` // options of the layers that are in force
	Peer          Peer                `json:"peer"`
	Setup         *Setup              `json:"setup,omitempty"`
	Params        Params              `json:"params"`
	Limits        []Limit             `json:"limits,omitempty"` // what the server granted less of
	Directions    []Direction         `json:"directions,omitempty"`
	Latency       *Latency            `json:"latency,omitempty"`
	Hold          *HoldResult         `json:"hold,omitempty"`
	Repetitions   *Repetitions        `json:"repetitions,omitempty"`
	CPU           *CPU                `json:"cpu,omitempty"`
	PeerCPU       *CPU                `json:"peer_cpu,omitempty"`
	TCP           []transport.TCPInfo `json:"tcp_info,omitempty"` // of each connection, at the end
	PeerTCP       []transport.TCPInfo `json:"peer_tcp_info,omitempty"`
	Diagnosis     []Diagnosis         `json:"diagnosis,omitempty"`
	Complete      bool                `json:"complete"`
	Error         *Error              `json:"error,omitempty"` // why it is not
	ServerOutput  *Result             `json:"server_output,omitempty"`
}

// A Tool names the program that made a result.
type Tool struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
}

// A Peer is the other end.
type Peer struct {
	Address string `json:"address"`
	ID      string `json:"peer_id,omitempty"`
	Agent   string `json:"agent,omitempty"`
}

// Setup is how long each layer took, in the first connection.
type Setup struct {
	transport.Setup
	Stream time.Duration `json:"stream_ns"` // opening the first stream and agreeing on its protocol
}

// Params are what was asked for; zero means not set.
type Params struct {
	Duration     time.Duration `json:"duration_ns,omitempty"`
	Omit         time.Duration `json:"omit_ns,omitempty"`
	Interval     time.Duration `json:"interval_ns,omitempty"`
	Bytes        uint64        `json:"bytes,omitempty"`
	Block        int           `json:"block_bytes,omitempty"`
	Connections  int           `json:"connections"`
	Streams      int           `json:"streams"` // per connection
	Rate         float64       `json:"rate_bps,omitempty"`
	StreamRate   float64       `json:"stream_rate_bps,omitempty"`
	Verify       bool          `json:"verify,omitempty"`
	Request      int           `json:"request_bytes,omitempty"`
	Response     int           `json:"response_bytes,omitempty"`
	Outstanding  int           `json:"outstanding,omitempty"`
	Transactions float64       `json:"target_transactions_per_second,omitempty"`
	Target       string        `json:"target,omitempty"` // behind a Wisp server
}

// A Limit is something of which the server granted less than was asked.
type Limit struct {
	Name    string `json:"name"`
	Asked   string `json:"asked"`
	Granted string `json:"granted"`
}

// A Direction is the payload that went one way.
type Direction struct {
	Name       string `json:"name"`        // "upload" or "download", seen from the client
	MeasuredAt string `json:"measured_at"` // whose figures the headline has: "receiver" or "sender"
	Receiver   *Side  `json:"receiver,omitempty"`
	Sender     *Side  `json:"sender,omitempty"`
}

// Headline is the side that counts: the receiver's, if it is known.
func (d Direction) Headline() *Side {
	if d.Receiver != nil {
		return d.Receiver
	}
	return d.Sender
}

// A Side is one direction as one end saw it. The rate is derived: bytes by window.
type Side struct {
	measure.Totals
	Verified bool                `json:"verified,omitempty"` // every byte was checked and right
	TCP      []transport.TCPInfo `json:"tcp_info,omitempty"` // the sender's, at the end of each interval
}

// A CPU is the processor time of one end's process.
type CPU struct {
	User    time.Duration `json:"user_ns"`
	System  time.Duration `json:"system_ns"`
	Wall    time.Duration `json:"wall_ns"`
	Percent float64       `json:"percent"`                  // of one core
	PerGB   float64       `json:"seconds_per_gb,omitempty"` // per 10^9 payload bytes, both directions
}

// NewCPU derives percent and seconds per GB.
func NewCPU(user, system, wall time.Duration, bytes uint64) *CPU {
	c := &CPU{User: user, System: system, Wall: wall}
	if wall > 0 {
		c.Percent = 100 * (user + system).Seconds() / wall.Seconds()
	}
	if bytes > 0 {
		c.PerGB = (user + system).Seconds() / (float64(bytes) / 1e9)
	}
	return c
}

// Latency is the distribution of full round trips, or of whole transactions.
type Latency struct {
	Loop        string                `json:"loop"` // "closed" or "open"
	Window      time.Duration         `json:"window_ns"`
	PerSecond   float64               `json:"transactions_per_second"`
	Corrected   measure.Distribution  `json:"latency"`               // from the intended instant
	Uncorrected *measure.Distribution `json:"uncorrected,omitempty"` // from the actual one, in an open loop
	FirstByte   *measure.Distribution `json:"first_byte,omitempty"`  // test open
}

// HoldResult is what holding many connections, or streams, gave.
type HoldResult struct {
	What         string                `json:"what"` // "connections" or "streams"
	Asked        int                   `json:"asked"`
	Established  int                   `json:"established"`
	Failures     map[string]int        `json:"failures,omitempty"` // by cause
	Plan         []string              `json:"plan,omitempty"`     // how the limits of the machine were met
	Time         time.Duration         `json:"time_ns"`
	Delay        time.Duration         `json:"configured_delay_ns"` // the part of it that was asked for
	PerSecond    float64               `json:"accept_rate"`         // net of that
	Connect      *measure.Distribution `json:"connect,omitempty"`
	Echoed       int                   `json:"echoed"`
	EchoTime     time.Duration         `json:"echo_time_ns"`
	CloseTime    time.Duration         `json:"close_time_ns"`
	ClientMemory float64               `json:"client_bytes_per_connection"`
	ServerMemory float64               `json:"server_bytes_per_connection,omitempty"`
	ListenDrops  uint64                `json:"listen_drops"`
}

// Repetitions summarise a test that was run more than once.
type Repetitions struct {
	Unit    string    `json:"unit"`   // of the values
	Values  []float64 `json:"values"` // in the order in which they were measured
	Center  float64   `json:"center"` // mean with Wanted, else median
	Low     float64   `json:"low"`
	High    float64   `json:"high"`
	Level   float64   `json:"confidence_level"`
	Wanted  float64   `json:"wanted_width,omitempty"` // full width as a share of the mean
	Reached bool      `json:"reached"`
}

// A Diagnosis says what limited a run, and how one can tell.
type Diagnosis struct {
	Verdict  string `json:"verdict"`
	Evidence string `json:"evidence"`
	Remedy   string `json:"remedy,omitempty"`
}

// Bytes is the payload of all directions in the measured windows.
func (r *Result) Bytes() uint64 {
	var sum uint64
	for _, d := range r.Directions {
		if h := d.Headline(); h != nil {
			sum += h.Bytes
		}
	}
	return sum
}
