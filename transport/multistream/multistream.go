// Package multistream agrees on the protocol of a connection or stream: multistream-select 1.0.
//
// Both sides send a header, then the dialer proposes protocols until the listener echoes one:
//
//	dialer    /multistream/1.0.0  /noise                            /plaintext/2.0.0
//	listener                      /multistream/1.0.0  na                              /plaintext/2.0.0
//
// A message is uvarint(len(token)+1), the token, and a newline. Everything is read exactly, byte
// by byte where the length is not known yet: the byte after the agreed token belongs to the next
// layer. Deadlines are the caller's.
//
// Source: libp2p specs, connections/README.md, "multistream-select".
package multistream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"muxperf/transport"
)

const (
	header = "/multistream/1.0.0"
	refuse = "na"

	maxWrite     = 1024  // bytes of a message, newline included, that go-libp2p accepts
	maxRead      = 16383 // that rust-libp2p sends: two bytes of uvarint
	maxProposals = 64    // after which a dialer is refused; the longest known list has about ten
)

// Select is the dialer's side: it proposes protocols in order and returns the one that the peer
// agreed to. Header and first proposal go out in one write. The error wraps transport.ErrProtocol
// if the peer refused them all, transport.ErrHandshake if it does not speak multistream-select.
func Select(rw io.ReadWriter, protocols ...string) (string, error) {
	if len(protocols) == 0 {
		return "", errors.New("no protocol to propose")
	}
	out := appendToken(nil, header)
	for i, protocol := range protocols {
		if len(protocol)+1 > maxWrite {
			return "", fmt.Errorf("protocol name of %d bytes is too long", len(protocol))
		}
		if err := write(rw, appendToken(out, protocol)); err != nil {
			return "", fmt.Errorf("proposing %s: %w", protocol, err)
		}
		out = out[:0]
		if i == 0 {
			if err := readHeader(rw); err != nil {
				return "", err
			}
		}
		agreed, err := readAnswer(rw, protocol)
		if err != nil || agreed {
			return protocol, err
		}
	}
	return "", fmt.Errorf("%w: %s", transport.ErrProtocol, strings.Join(protocols, ", "))
}

// Negotiate is the listener's side: it refuses proposals until accept says yes to one, and returns
// that. A dialer may send the header alone and wait for ours, or header and proposal at once. The
// error wraps transport.ErrHandshake if the peer does not speak multistream-select, and
// transport.ErrProtocol if it proposed nothing acceptable before it gave up.
func Negotiate(rw io.ReadWriter, accept func(protocol string) bool) (string, error) {
	if err := readHeader(rw); err != nil {
		return "", err
	}
	// The header is sent beside the reading: on a connection without a buffer, such as net.Pipe,
	// the dialer takes it only when its own write has been read.
	sent := make(chan error, 1)
	go func() { sent <- write(rw, appendToken(nil, header)) }()

	for i := range maxProposals {
		protocol, err := readToken(rw)
		if err != nil {
			if i > 0 && errors.Is(err, io.EOF) {
				return "", fmt.Errorf("%w: the peer gave up after %d proposals", transport.ErrProtocol, i)
			}
			return "", fmt.Errorf("reading a proposal: %w", err)
		}
		if i == 0 {
			if err := <-sent; err != nil {
				return "", fmt.Errorf("sending the multistream header: %w", err)
			}
		}
		accepted := accept(protocol)
		answer := refuse
		if accepted {
			answer = protocol
		}
		if err := write(rw, appendToken(nil, answer)); err != nil {
			return "", fmt.Errorf("answering the proposal %s: %w", protocol, err)
		}
		if accepted {
			return protocol, nil
		}
	}
	return "", fmt.Errorf("%w: none of the first %d proposals", transport.ErrProtocol, maxProposals)
}

// readHeader reads the peer's header. Its first byte tells whether the peer speaks this protocol at
// all; waiting for more of something else might wait for ever.
func readHeader(r io.Reader) error {
	want := appendToken(nil, header)
	got := make([]byte, len(want))
	for n := range want {
		if _, err := io.ReadFull(r, got[n:n+1]); err != nil {
			return fmt.Errorf("reading the multistream header: %w", unexpected(err, n))
		}
		if got[n] == want[n] {
			continue
		}
		if n == 0 {
			return fmt.Errorf("%w: the peer does not speak multistream-select: its first byte is %q (0x%02x)%s",
				transport.ErrHandshake, got[0], got[0], guess(got[0]))
		}
		return fmt.Errorf("%w: not the header of multistream-select 1.0: %q", transport.ErrHandshake, got[:n+1])
	}
	return nil
}

// guess says what a peer that starts with b may be.
func guess(b byte) string {
	switch b {
	case 'H':
		return ", as an HTTP server's would be"
	case 'S':
		return ", as an SSH server's would be"
	case 0x15, 0x16:
		return ", as of TLS"
	}
	return ""
}

// readAnswer reads the listener's answer to a proposal.
func readAnswer(r io.Reader, protocol string) (agreed bool, err error) {
	answer, err := readToken(r)
	switch {
	case err != nil:
		return false, fmt.Errorf("reading the answer to %s: %w", protocol, err)
	case answer == protocol:
		return true, nil
	case answer == refuse:
		return false, nil
	}
	return false, fmt.Errorf("%w: proposed %s, and the peer answered %q", transport.ErrHandshake, protocol, answer)
}

// readToken reads one message and returns its token.
func readToken(r io.Reader) (string, error) {
	length, err := readLength(r)
	if err != nil {
		return "", err
	}
	b := make([]byte, length)
	if n, err := io.ReadFull(r, b); err != nil {
		return "", unexpected(err, n+1)
	}
	if b[length-1] != '\n' {
		return "", fmt.Errorf("%w: multistream message %.40q does not end in a newline", transport.ErrHandshake, b)
	}
	return string(b[:length-1]), nil
}

// readLength reads the uvarint before a message: one or two bytes.
func readLength(r io.Reader) (int, error) {
	var b [2]byte
	for n := range b {
		if _, err := io.ReadFull(r, b[n:n+1]); err != nil {
			return 0, unexpected(err, n)
		}
		if b[n] >= 0x80 {
			continue
		}
		length, _ := binary.Uvarint(b[:n+1])
		if length == 0 {
			return 0, fmt.Errorf("%w: empty multistream message", transport.ErrHandshake)
		}
		return int(length), nil
	}
	return 0, fmt.Errorf("%w: multistream message longer than %d bytes", transport.ErrHandshake, maxRead)
}

// unexpected turns an end of file after n bytes of a message into io.ErrUnexpectedEOF.
func unexpected(err error, n int) error {
	if err == io.EOF && n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendToken appends one message.
func appendToken(b []byte, token string) []byte {
	b = binary.AppendUvarint(b, uint64(len(token)+1))
	b = append(b, token...)
	return append(b, '\n')
}

func write(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}
