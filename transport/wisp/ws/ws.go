// Package ws is the framing of WebSockets (RFC 6455) for one purpose: moving large binary messages with
// one pass over each byte. Message libraries cost several times what the framing does, and the framing is
// what is measured here.
//
// Reading: a frame's payload goes from the socket's buffer straight into the caller's buffer and is unmasked
// there; fragments of a message are joined without another copy. Writing: a frame is appended to what else is
// going out, and its payload is masked while it is copied there.
package ws

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	gobwas "github.com/gobwas/ws"
)

// The opcodes (RFC 6455, section 5.2).
const (
	opContinuation = 0
	opText         = 1
	OpBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// HeaderRoom is the most that a header needs: 2 bytes, 8 of length, 4 of mask.
const HeaderRoom = 14

// The codes of a close frame (RFC 6455, section 7.4.1).
const (
	CloseNormal      = 1000
	CloseGoingAway   = 1001
	CloseProtocol    = 1002
	CloseUnsupported = 1003
	CloseTooBig      = 1009
	CloseInternal    = 1011
)

// A ProtocolError is the peer's violation of the standard; Code is what to close with.
type ProtocolError struct {
	Code int
	Text string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("websocket: %s (close code %d)", e.Text, e.Code)
}

func violation(code int, format string, a ...any) error {
	return &ProtocolError{code, fmt.Sprintf(format, a...)}
}

// ErrClosed: the peer has sent a close frame.
var ErrClosed = errors.New("websocket closed by the peer")

// A Reader reads messages. It is not safe for concurrent use.
type Reader struct {
	r      *bufio.Reader
	server bool // we are the server: frames have to be masked
	limit  int  // bytes of a message
	pong   func([]byte) error

	scratch [8]byte // parts of headers: a local array would be allocated for each frame, since it goes through an interface
}

// NewReader reads from r. pong is called with the payload of each ping. A message of more than limit bytes
// is a violation.
func NewReader(r *bufio.Reader, server bool, limit int, pong func([]byte) error) *Reader {
	return &Reader{r: r, server: server, limit: limit, pong: pong}
}

// A frame is a header.
type frame struct {
	fin    bool
	op     byte
	length int
	mask   [4]byte
	masked bool
}

// Next reads the next binary message into buf, which grow makes larger when it has to be, and returns it.
// Control frames in between are answered. The error is ErrClosed, a ProtocolError, or the socket's.
func (r *Reader) Next(buf []byte, grow func(buf []byte, n int) []byte) ([]byte, error) {
	buf = buf[:0]
	for started := false; ; {
		f, err := r.header()
		if err != nil {
			return buf, err
		}
		if f.op >= opClose {
			if err := r.control(f); err != nil {
				return buf, err
			}
			continue
		}
		switch {
		case f.op == opText:
			return buf, violation(CloseUnsupported, "a text message")
		case f.op == OpBinary && started:
			return buf, violation(CloseProtocol, "a new message inside another")
		case f.op == opContinuation && !started:
			return buf, violation(CloseProtocol, "a continuation of nothing")
		case f.op != OpBinary && f.op != opContinuation:
			return buf, violation(CloseProtocol, "opcode %d", f.op)
		case len(buf)+f.length > r.limit:
			return buf, violation(CloseTooBig, "a message of more than %d bytes", r.limit)
		}
		started = true
		at := len(buf)
		if cap(buf) < at+f.length {
			buf = grow(buf, at+f.length)
		}
		buf = buf[:at+f.length]
		if err := r.payload(buf[at:], f); err != nil {
			return buf, err
		}
		if f.fin {
			return buf, nil
		}
	}
}

// payload reads and unmasks. A mask of zeros changes nothing and is skipped.
func (r *Reader) payload(b []byte, f frame) error {
	if _, err := io.ReadFull(r.r, b); err != nil {
		return unexpected(err)
	}
	if f.masked && f.mask != [4]byte{} {
		gobwas.Cipher(b, f.mask, 0)
	}
	return nil
}

// header reads a frame's header and checks it.
func (r *Reader) header() (f frame, err error) {
	b := &r.scratch
	if _, err := io.ReadFull(r.r, b[:2]); err != nil {
		return f, err
	}
	f.fin, f.op, f.masked = b[0]&0x80 != 0, b[0]&0x0f, b[1]&0x80 != 0
	if b[0]&0x70 != 0 {
		return f, violation(CloseProtocol, "reserved bits %#x", b[0]&0x70)
	}
	if f.masked != r.server {
		if r.server {
			return f, violation(CloseProtocol, "an unmasked frame from a client")
		}
		return f, violation(CloseProtocol, "a masked frame from a server")
	}
	length := uint64(b[1] & 0x7f)
	switch length {
	case 126:
		if _, err := io.ReadFull(r.r, b[:2]); err != nil {
			return f, unexpected(err)
		}
		length = uint64(binary.BigEndian.Uint16(b[:2]))
	case 127:
		if _, err := io.ReadFull(r.r, b[:8]); err != nil {
			return f, unexpected(err)
		}
		length = binary.BigEndian.Uint64(b[:8])
	}
	if f.op >= opClose && (length > 125 || !f.fin) {
		return f, violation(CloseProtocol, "a control frame of %d bytes, or in fragments", length)
	}
	if length > uint64(r.limit) && f.op < opClose {
		return f, violation(CloseTooBig, "a frame of %d bytes, more than %d", length, r.limit)
	}
	f.length = int(length)
	if f.masked {
		if _, err := io.ReadFull(r.r, b[:4]); err != nil {
			return f, unexpected(err)
		}
		f.mask = [4]byte(b[:4])
	}
	return f, nil
}

// control answers a ping, ignores a pong, and ends with a close.
func (r *Reader) control(f frame) error {
	var b [125]byte
	if err := r.payload(b[:f.length], f); err != nil {
		return err
	}
	switch f.op {
	case opPing:
		return r.pong(b[:f.length])
	case opPong:
		return nil
	case opClose:
		return ErrClosed
	}
	return violation(CloseProtocol, "control opcode %d", f.op)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
