// The messages, as JSON. Fields may be added; a reader ignores those that it does not know. Times
// and durations are integers of nanoseconds, sizes are bytes, rates are bits per second.

package control

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

// Version is the version of the exchange that this program speaks. A peer with another one is told
// so in a refusal.
const Version = 1

// A Greeting opens the exchange.
type Greeting struct {
	Version int    `json:"version"`
	Agent   string `json:"agent"`          // program and version
	Nonce   string `json:"nonce"`          // hex; what the proof of a token is made over
	Token   bool   `json:"token_required"` // whether a proof is needed
}

// A Request asks for a test.
type Request struct {
	Version int    `json:"version"`
	Agent   string `json:"agent"`
	Proof   string `json:"proof,omitempty"` // hex HMAC-SHA256(token, nonce)
	Params  Params `json:"params"`
}

// Direction says which way the payload goes, seen from the client.
type Direction string

// The directions.
const (
	Upload   Direction = "upload"
	Download Direction = "download"
	Both     Direction = "both" // both ways on the same streams
)

// Params are what is to be measured. In a Grant they are what the server allows.
type Params struct {
	Test        string        `json:"test"`                          // "flood"
	Direction   Direction     `json:"direction"`                     //
	Duration    time.Duration `json:"duration_ns"`                   // measured time, after Omit; 0: until the bytes are sent
	Omit        time.Duration `json:"omit_ns,omitempty"`             // warm-up before it, left out of the totals
	Bytes       uint64        `json:"bytes,omitempty"`               // exact, per direction, over all streams; 0: no limit
	Block       int           `json:"block_bytes"`                   // one write
	Connections int           `json:"connections"`                   //
	Streams     int           `json:"streams"`                       // per connection
	Rate        float64       `json:"rate_bps,omitempty"`            // per direction, over all streams; 0: unlimited
	StreamRate  float64       `json:"stream_rate_bps,omitempty"`     // of each stream
	Interval    time.Duration `json:"interval_ns,omitempty"`         // 0: no intervals
	Verify      bool          `json:"verify,omitempty"`              // the receiver checks every byte
	SocketBuf   int           `json:"socket_buffer_bytes,omitempty"` // SO_SNDBUF and SO_RCVBUF, both ends
	Congestion  string        `json:"congestion_control,omitempty"`  // TCP congestion control, both ends
	NoDelayOff  bool          `json:"nagle,omitempty"`               // leave Nagle's algorithm on, both ends
	Stall       time.Duration `json:"stall_timeout_ns"`              // without a byte for so long the run has stalled
	Title       string        `json:"title,omitempty"`               //
}

// A Limit is something that the server granted less of than was asked.
type Limit struct {
	Name    string `json:"name"`
	Asked   string `json:"asked"`
	Granted string `json:"granted"`
}

// A Grant starts the set-up of data streams.
type Grant struct {
	Run    string  `json:"run"` // 32 hex digits; the data streams' headers carry it
	Agent  string  `json:"agent"`
	Params Params  `json:"params"`
	Limits []Limit `json:"limits,omitempty"`
}

// An Abort is why an end gives up; a refusal has the same form.
type Abort struct {
	Code    string `json:"code"`           // one of the Code constants
	Message string `json:"message"`        // one line
	Hint    string `json:"hint,omitempty"` // what to do about it
}

// The codes of refusals and aborts.
const (
	CodeVersion     = "version"     // the versions do not go together
	CodeToken       = "token"       // missing or wrong
	CodeLimit       = "limit"       // too many clients, streams, or the server is going down
	CodeParams      = "params"      // parameters that make no sense
	CodeStall       = "stall"       // no progress, or a message did not come
	CodeVerify      = "verify"      // the payload arrived changed
	CodeBytes       = "bytes"       // more or fewer bytes than announced
	CodeInterrupted = "interrupted" // the user ended it
	CodeFailed      = "failed"      // anything else
)

// Error is the peer's message.
func (a *Abort) Error() string {
	if a.Hint != "" {
		return a.Message + " (" + a.Hint + ")"
	}
	return a.Message
}

// Progress is how many payload bytes this end has sent and received since the start.
type Progress struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// Done ends this end's payload: the bytes that were sent on each data stream, in the order of
// connections, then streams.
type Done struct {
	Sent       []uint64 `json:"sent"`
	Incomplete string   `json:"incomplete,omitempty"` // why it was cut short; "" if it was not
}

// A Report is one end's own result.
type Report struct {
	Agent       string              `json:"agent"`
	Sent        *Side               `json:"sent,omitempty"`
	Received    *Side               `json:"received,omitempty"`
	CPU         CPU                 `json:"cpu"`
	TCP         []transport.TCPInfo `json:"tcp_info,omitempty"` // one per connection, at the end
	Environment map[string]string   `json:"environment,omitempty"`
	Incomplete  string              `json:"incomplete,omitempty"`
}

// A Side is one direction as one end saw it. Its clock starts at its first payload byte.
type Side struct {
	measure.Totals
	Verified bool                `json:"verified,omitempty"` // every byte was checked and right
	TCP      []transport.TCPInfo `json:"tcp_info,omitempty"` // the sender's, at the end of each interval; connections together
}

// CPU is processor time of this end's process during the run.
type CPU struct {
	User   time.Duration `json:"user_ns"`
	System time.Duration `json:"system_ns"`
	Wall   time.Duration `json:"wall_ns"`
}

// A StreamHeader is the first 24 bytes of a data stream: the run id, and which stream it is.
type StreamHeader struct {
	Run        [16]byte
	Connection uint32
	Stream     uint32
}

// Append appends the header's bytes to b.
func (h StreamHeader) Append(b []byte) []byte {
	b = append(b, h.Run[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Connection)
	return binary.BigEndian.AppendUint32(b, h.Stream)
}

// ReadStreamHeader reads it.
func ReadStreamHeader(r io.Reader) (h StreamHeader, err error) {
	var b [24]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, fmt.Errorf("reading the header of a data stream: %w", err)
	}
	copy(h.Run[:], b[:16])
	h.Connection, h.Stream = binary.BigEndian.Uint32(b[16:20]), binary.BigEndian.Uint32(b[20:])
	return h, nil
}
