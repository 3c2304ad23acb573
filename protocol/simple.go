// The protocols of one loop: echo, discard and chargen (RFC 862, 863 and 864 in spirit), and
// request and response.

package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxMessage bounds a request or a response, in bytes: a peer cannot make us hold more.
const MaxMessage = 16 << 20

// EchoServer sends back what arrives, through buf; a peer that does not read stops it from reading.
func EchoServer(st io.ReadWriter, buf []byte, count Counter) error {
	for {
		n, err := st.Read(buf)
		if n > 0 {
			count.Add(n)
			if _, werr := st.Write(buf[:n]); werr != nil {
				return fmt.Errorf("writing the echo: %w", werr)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading what to echo: %w", err)
		}
	}
}

// ChargenServer writes payload until the peer ends the stream.
func ChargenServer(st io.Writer, payload *Payload, block int, count Counter) error {
	_, err := Send(st, payload, block, func(want int) int { return want }, count)
	return err
}

// RRHeader opens a request-and-response stream: the sizes of each message, two u32, big endian.
type RRHeader struct{ Request, Response int }

// Append appends the header's 8 bytes to b.
func (h RRHeader) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.Request))
	return binary.BigEndian.AppendUint32(b, uint32(h.Response))
}

// ReadRRHeader reads it; sizes of zero and above MaxMessage are refused.
func ReadRRHeader(r io.Reader) (RRHeader, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return RRHeader{}, fmt.Errorf("reading the request sizes: %w", err)
	}
	h := RRHeader{Request: int(binary.BigEndian.Uint32(b[:4])), Response: int(binary.BigEndian.Uint32(b[4:]))}
	if h.Request < 1 || h.Request > MaxMessage || h.Response < 1 || h.Response > MaxMessage {
		return h, fmt.Errorf("a request of %d and a response of %d bytes: each must be 1 to %d", h.Request, h.Response, MaxMessage)
	}
	return h, nil
}

// RRServer reads the header, then answers each request with a response until the peer's end of
// data. Requests may be pipelined.
func RRServer(st io.ReadWriter, count Counter) error {
	h, err := ReadRRHeader(st)
	if err != nil {
		return err
	}
	request, response := make([]byte, h.Request), make([]byte, h.Response)
	for {
		if _, err := io.ReadFull(st, request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a request: %w", err)
		}
		count.Add(h.Request)
		copy(response, request) // so that the client can tell whose answer it got
		if _, err := st.Write(response); err != nil {
			return fmt.Errorf("writing a response: %w", err)
		}
	}
}
