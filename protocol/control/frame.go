// Package control is muxperf's own exchange, /muxperf/1.0.0: what is to be measured, a common
// start, and both ends' results, over one control stream beside the data streams.
//
//	client                                  server
//	                                   <--  greeting   version, agent, nonce
//	request   version, token proof, params -->
//	                                   <--  grant      run id, the params as granted
//	                                        (or refusal)
//	opens the data streams, each with a 24-byte header (run id, connection, stream)
//	                                   <--  ready      all of them have arrived
//	start                              -->
//	===== data, upload, download or both; progress both ways, once a second =====
//	done      bytes sent, per stream   <->  done       (whoever sends data)
//	report    this end's result        <->  report
//	bye                                -->             and the control stream ends
//
// The end of a data stream is a number, not a half-close: the receiver reads until it has the bytes
// that `done` names. So no byte is lost over muxers without a half-close, and one that is missing is
// noticed. Either end may send `abort` at any time.
//
// Every frame is a length (u32, big endian, of what follows, at most 65,536), a type (u8) and a part
// of a JSON object. A message may need several frames: all but its last have the top bit of the type
// set. A message is at most 4 MiB. docs/protocol.md has it byte by byte.
package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxFrame   = 64 << 10
	maxMessage = 4 << 20
	moreBit    = 0x80
)

// writeTimeout bounds the sending of one message: a peer that does not read its control stream for
// so long is gone.
const writeTimeout = 15 * time.Second

// A Type says what a message is.
type Type byte

// The types of message; the numbers are the wire's.
const (
	TypeGreeting Type = 1
	TypeRequest  Type = 2
	TypeGrant    Type = 3
	TypeRefusal  Type = 4
	TypeReady    Type = 5
	TypeStart    Type = 6
	TypeProgress Type = 7
	TypeDone     Type = 8
	TypeReport   Type = 9
	TypeAbort    Type = 10
	TypeBye      Type = 11
	TypeStop     Type = 12
)

// String names a type, for errors.
func (t Type) String() string {
	names := [...]string{1: "greeting", "request", "grant", "refusal", "ready", "start",
		"progress", "done", "report", "abort", "bye", "stop"}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type %d", byte(t))
}

// ErrWire: the peer's bytes are not control messages.
var ErrWire = errors.New("malformed control message")

// writeMessage writes v as one message.
func writeMessage(w io.Writer, t Type, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the %s message: %w", t, err)
	}
	if len(body) > maxMessage {
		return fmt.Errorf("the %s message has %d bytes, more than %d", t, len(body), maxMessage)
	}
	var out []byte
	for first := true; first || len(body) > 0; first = false {
		part := body[:min(len(body), maxFrame-1)]
		body = body[len(part):]
		kind := byte(t)
		if len(body) > 0 {
			kind |= moreBit
		}
		out = binary.BigEndian.AppendUint32(out, uint32(1+len(part)))
		out = append(out, kind)
		out = append(out, part...)
	}
	_, err = w.Write(out)
	return err
}

// readMessage reads one message; its body is JSON that no one has looked at yet. The error wraps
// ErrWire if the bytes are not in form; it is io.EOF if the stream ended between messages.
func readMessage(r io.Reader) (Type, []byte, error) {
	var body []byte
	var kind Type
	for first := true; ; first = false {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if !first && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		n := binary.BigEndian.Uint32(head[:4])
		if n < 1 || n > maxFrame {
			return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrWire, n)
		}
		t := Type(head[4] &^ moreBit)
		if !first && t != kind {
			return 0, nil, fmt.Errorf("%w: a %s frame inside a %s message", ErrWire, t, kind)
		}
		kind = t
		if len(body)+int(n)-1 > maxMessage {
			return 0, nil, fmt.Errorf("%w: a %s message of more than %d bytes", ErrWire, kind, maxMessage)
		}
		start := len(body)
		body = append(body, make([]byte, n-1)...)
		if _, err := io.ReadFull(r, body[start:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		if head[4]&moreBit == 0 {
			return kind, body, nil
		}
	}
}

// decode parses the body of a message.
func decode(t Type, body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: the body of the %s message: %v", ErrWire, t, err)
	}
	return nil
}

// A controlStream is what the exchange needs of a transport.Stream.
type controlStream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// A channel sends and receives messages on a control stream. Sending is safe for concurrent use.
type channel struct {
	st      controlStream
	mu      sync.Mutex
	ended   atomic.Bool // nobody waits for messages any more
	hurried atomic.Bool // the peer may not read any more
}

// interrupt ends a receive that waits, and those to come: a later deadline does not undo it.
func (c *channel) interrupt() {
	c.ended.Store(true)
	_ = c.st.SetReadDeadline(time.Unix(1, 0))
}

// hurry gives what is being sent, and each message after it, stopGrace and no more.
func (c *channel) hurry() {
	c.hurried.Store(true)
	_ = c.st.SetWriteDeadline(time.Now().Add(stopGrace))
}

func (c *channel) send(t Type, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.st.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("sending %s: %w", t, err)
	}
	if c.hurried.Load() { // the deadline just set may have replaced that of hurry
		c.hurry()
	}
	if err := writeMessage(c.st, t, v); err != nil {
		return fmt.Errorf("sending %s: %w", t, err)
	}
	return nil
}

// receive waits for the next message until deadline; the zero deadline waits for ever.
func (c *channel) receive(deadline time.Time) (Type, []byte, error) {
	if err := c.st.SetReadDeadline(deadline); err != nil {
		return 0, nil, err
	}
	if c.ended.Load() { // the deadline just set may have replaced that of interrupt
		return 0, nil, os.ErrDeadlineExceeded
	}
	return readMessage(c.st)
}

// expect waits for one message of type want and decodes it into v. A refusal or an abort of the
// peer becomes the error that it describes.
func (c *channel) expect(want Type, v any, deadline time.Time) error {
	t, body, err := c.receive(deadline)
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", want, err)
	}
	switch t {
	case want:
		return decode(t, body, v)
	case TypeRefusal, TypeAbort:
		var a Abort
		if err := decode(t, body, &a); err != nil {
			return err
		}
		return &a
	}
	return fmt.Errorf("%w: %s arrived where %s was due", ErrWire, t, want)
}
