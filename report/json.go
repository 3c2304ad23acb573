// The JSON forms of our own: one document, or a line for each event.

package report

import (
	"encoding/json"
	"fmt"
	"io"
)

// write encodes v on one line, or indented.
func write(w io.Writer, v any, indent bool) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		// A closed stdout cannot be told to anybody; anything else is said in JSON too, never in silence.
		_, _ = fmt.Fprintf(w, "{\"error\":{\"kind\":\"failed\",\"message\":%q}}\n", "encoding the result: "+err.Error())
	}
}

// native writes the Result itself, at the end.
type native struct{ w io.Writer }

func (n *native) Start(*Result) {}
func (n *native) Interval(Live) {}
func (n *native) End(r *Result) { write(n.w, r, true) }

// lines writes {"event":…,"data":…} for start, interval and end, as they happen.
type lines struct{ w io.Writer }

type event struct {
	Event string `json:"event"`
	Data  any    `json:"data"`
}

func (l *lines) Start(r *Result) { write(l.w, event{"start", r}, false) }
func (l *lines) Interval(iv Live) {
	data := map[string]any{"direction": iv.Direction, "measured_at": iv.At, "start_ns": iv.Start,
		"end_ns": iv.End, "bytes": iv.Bytes, "omitted": iv.Omitted, "tcp_info": iv.TCP}
	if len(iv.Streams) > 0 {
		data["stream_bytes"] = iv.Streams
	}
	write(l.w, event{"interval", data}, false)
}
func (l *lines) End(r *Result) {
	if r.Error != nil {
		write(l.w, event{"error", r.Error}, false)
	}
	write(l.w, event{"end", r}, false)
}

// peerLines writes the lines of docs/peers.md, which the matrix reads.
type peerLines struct{ w io.Writer }

func (p *peerLines) Start(*Result) {}
func (p *peerLines) Interval(Live) {}
func (p *peerLines) End(r *Result) {
	if r.Error != nil && (len(r.Directions) == 0 || r.Role == "client") {
		write(p.w, map[string]any{"event": "error", "message": r.Error.Error(), "kind": r.Error.Kind}, false)
		if r.Role == "client" {
			return
		}
	}
	line := peerLine{Event: "result", Role: r.Role, Protocol: r.Protocol, Incomplete: !r.Complete}
	if r.Setup != nil {
		line.Setup = (r.Setup.Connect + r.Setup.Security + r.Setup.Mux + r.Setup.Stream).Seconds()
	}
	for _, d := range r.Directions {
		own := d.Sender
		sending := (d.Name == "upload") == (r.Role == "client")
		if !sending {
			own = d.Receiver
		}
		if own == nil {
			continue
		}
		if sending {
			line.Sent += own.Bytes + own.Omitted
		} else {
			line.Received += own.Bytes + own.Omitted
		}
		line.Seconds = max(line.Seconds, (own.Omit + own.Window).Seconds())
		for _, iv := range own.Intervals {
			line.Intervals = append(line.Intervals, peerInterval{iv.End.Seconds(), iv.Bytes})
		}
	}
	write(p.w, line, false)
}

type peerLine struct {
	Event      string         `json:"event"`
	Role       string         `json:"role"`
	Protocol   string         `json:"protocol"`
	Sent       uint64         `json:"sent_bytes"`
	Received   uint64         `json:"received_bytes"`
	Seconds    float64        `json:"seconds"`
	Setup      float64        `json:"setup_seconds,omitempty"`
	Incomplete bool           `json:"incomplete,omitempty"`
	Intervals  []peerInterval `json:"intervals,omitempty"`
}

type peerInterval struct {
	End   float64 `json:"end_seconds"`
	Bytes uint64  `json:"bytes"`
}

// libp2p writes the lines of the perf harness of libp2p/test-plans: one for each interval, and a last
// one for the whole, in which the time includes connecting.
type libp2p struct {
	w io.Writer
	o Options
}

type libp2pLine struct {
	Type     string  `json:"type"`
	Seconds  float64 `json:"timeSeconds"`
	Upload   uint64  `json:"uploadBytes"`
	Download uint64  `json:"downloadBytes"`
}

func (l *libp2p) Start(*Result) {}
func (l *libp2p) Interval(iv Live) {
	line := libp2pLine{Type: "intermediary", Seconds: (iv.End - iv.Start).Seconds()}
	if iv.Direction == "upload" {
		line.Upload = iv.Bytes
	} else {
		line.Download = iv.Bytes
	}
	write(l.w, line, false)
}

// End prints nothing for a run that failed: the harness would take the line for a measurement. The error is on
// stderr, and in the exit code.
func (l *libp2p) End(r *Result) {
	if r.Error != nil && r.Error.Kind != KindInterrupted {
		return
	}
	line := libp2pLine{Type: "final"}
	if r.Setup != nil {
		line.Seconds = (r.Setup.Connect + r.Setup.Security + r.Setup.Mux + r.Setup.Stream).Seconds()
	}
	longest := 0.0
	for _, d := range r.Directions {
		h := d.Headline()
		if h == nil {
			continue
		}
		longest = max(longest, (h.Omit + h.Window).Seconds())
		if d.Name == "upload" {
			line.Upload += h.Bytes + h.Omitted
		} else {
			line.Download += h.Bytes + h.Omitted
		}
	}
	line.Seconds += longest
	write(l.w, line, false)
}
