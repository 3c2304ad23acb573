// Rendering: a Renderer sees a run from its start to its end and writes one form of output.

package report

import (
	"fmt"
	"io"
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

// A Live interval is shown while a run goes on.
type Live struct {
	measure.Interval
	Direction string            // "upload" or "download"
	At        string            // "sender" or "receiver": which end counted
	TCP       transport.TCPInfo // the sender's, zero if unknown
}

// A Renderer writes one form of output. Its methods are called from one goroutine at a time.
type Renderer interface {
	// Start sees what is known before the payload flows.
	Start(r *Result)
	// Interval sees one interval of a run.
	Interval(iv Live)
	// End sees the whole result; a failure is in its Error.
	End(r *Result)
}

// Options of the text form.
type Options struct {
	Format     Format
	Verbose    bool
	Histogram  bool
	Timestamps string           // layout for each line; "" for none
	Now        func() time.Time // for timestamps
	Quiet      bool             // no intervals
	Tag        string           // before each line of text, to tell runs apart
}

// The forms that New knows.
const (
	Text    = "text"
	JSON    = "native"
	Stream  = "stream"
	IPerf3  = "iperf3"
	Libp2p  = "libp2p"
	PeerRun = "peer" // the lines that the matrix reads: docs/peers.md
)

// New makes a renderer.
func New(form string, w io.Writer, o Options) (Renderer, error) {
	switch form {
	case Text:
		return &text{w: stamped(w, o), o: o}, nil
	case JSON:
		return &native{w: w}, nil
	case Stream:
		return &lines{w: w}, nil
	case IPerf3:
		return &iperf3{w: w}, nil
	case Libp2p:
		return &libp2p{w: w, o: o}, nil
	case PeerRun:
		return &peerLines{w: w}, nil
	}
	return nil, fmt.Errorf("there is no output form %q", form)
}

// stamped puts the time before each line that is written.
func stamped(w io.Writer, o Options) io.Writer {
	if o.Timestamps == "" {
		return w
	}
	return writerFunc(func(b []byte) (int, error) {
		if _, err := io.WriteString(w, o.Now().Format(o.Timestamps)+" "); err != nil {
			return 0, err
		}
		return w.Write(b)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
