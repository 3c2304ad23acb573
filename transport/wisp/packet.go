// Packets: a byte of type, a stream id, and what belongs to the type; all integers little-endian, one
// packet a binary message.
//
//	0x01 CONNECT   client to server   u8 stream type, u16 port, host name
//	0x02 DATA      both               bytes
//	0x03 CONTINUE  server to client   u32 packets that the client may still send
//	0x04 CLOSE     both               u8 reason
//	0x05 INFO      both, v2 only      u8 major, u8 minor, extensions: u8 id, u32 length, metadata
//
// Source: the Wisp protocol, versions 1.2 and 2.0 (draft 6).

package wisp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	typeConnect  = 0x01
	typeData     = 0x02
	typeContinue = 0x03
	typeClose    = 0x04
	typeInfo     = 0x05

	headerLen = 5

	streamTCP = 0x01
	streamUDP = 0x02
)

// A Reason is why a stream, or with id 0 the connection, is closed.
type Reason byte

// The reasons.
const (
	ReasonUnknown      Reason = 0x01
	ReasonVoluntary    Reason = 0x02
	ReasonNetwork      Reason = 0x03
	ReasonIncompatible Reason = 0x04 // extensions
	ReasonInvalid      Reason = 0x41
	ReasonUnreachable  Reason = 0x42
	ReasonTimeout      Reason = 0x43
	ReasonRefused      Reason = 0x44
	ReasonIdle         Reason = 0x47
	ReasonBlocked      Reason = 0x48
	ReasonThrottled    Reason = 0x49
	ReasonClient       Reason = 0x81
	ReasonPassword     Reason = 0xc0
	ReasonSignature    Reason = 0xc1
	ReasonCredentials  Reason = 0xc2
)

// String says it in words.
func (r Reason) String() string {
	names := map[Reason]string{
		ReasonUnknown: "unknown reason", ReasonVoluntary: "voluntary", ReasonNetwork: "network error",
		ReasonIncompatible: "incompatible extensions", ReasonInvalid: "invalid information", ReasonUnreachable: "host unreachable or unknown",
		ReasonTimeout: "connection timed out", ReasonRefused: "connection refused", ReasonIdle: "transfer timed out",
		ReasonBlocked: "destination not allowed", ReasonThrottled: "throttled", ReasonClient: "client error",
		ReasonPassword: "wrong password", ReasonSignature: "wrong signature", ReasonCredentials: "credentials missing",
	}
	if n, ok := names[r]; ok {
		return n
	}
	return fmt.Sprintf("reason %#02x", byte(r))
}

// The extensions of INFO.
const (
	extUDP      = 0x01
	extPassword = 0x02
	extCert     = 0x03
	extMOTD     = 0x04
	extConfirm  = 0x05
)

// errPacket: bytes that are no packet.
var errPacket = errors.New("malformed wisp packet")

// parseHeader reads type and stream id.
func parseHeader(p []byte) (kind byte, id uint32, body []byte, err error) {
	if len(p) < headerLen {
		return 0, 0, nil, fmt.Errorf("%w: %d bytes", errPacket, len(p))
	}
	return p[0], binary.LittleEndian.Uint32(p[1:5]), p[5:], nil
}

// A connect is a client's wish for a stream.
type connect struct {
	kind byte
	port int
	host string
}

func parseConnect(b []byte) (connect, error) {
	if len(b) < 3 {
		return connect{}, fmt.Errorf("%w: a CONNECT of %d bytes", errPacket, len(b))
	}
	c := connect{kind: b[0], port: int(binary.LittleEndian.Uint16(b[1:3])), host: string(b[3:])}
	switch {
	case c.kind != streamTCP && c.kind != streamUDP:
		return c, fmt.Errorf("%w: stream type %d", errPacket, c.kind)
	case c.port == 0:
		return c, fmt.Errorf("%w: port 0", errPacket)
	case c.host == "" || len(c.host) > 255 || !utf8.ValidString(c.host):
		return c, fmt.Errorf("%w: a host name of %d bytes", errPacket, len(c.host))
	}
	for _, r := range c.host {
		if r <= ' ' || r == 0x7f {
			return c, fmt.Errorf("%w: a host name with control characters", errPacket)
		}
	}
	return c, nil
}

func (c connect) append(b []byte) []byte {
	b = append(b, c.kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(c.port))
	return append(b, c.host...)
}

// An info is the handshake of version 2.
type info struct {
	major, minor byte
	extensions   map[byte][]byte
}

func parseInfo(b []byte) (info, error) {
	if len(b) < 2 {
		return info{}, fmt.Errorf("%w: an INFO of %d bytes", errPacket, len(b))
	}
	in := info{major: b[0], minor: b[1], extensions: map[byte][]byte{}}
	for b = b[2:]; len(b) > 0; {
		if len(b) < 5 {
			return in, fmt.Errorf("%w: an extension of %d bytes", errPacket, len(b))
		}
		id, n := b[0], binary.LittleEndian.Uint32(b[1:5])
		if uint64(n) > uint64(len(b)-5) {
			return in, fmt.Errorf("%w: an extension of %d bytes where %d are left", errPacket, n, len(b)-5)
		}
		in.extensions[id] = b[5 : 5+n]
		b = b[5+n:]
	}
	return in, nil
}

// appendInfo appends an INFO's body; extensions go in the order of ids.
func (in info) append(b []byte) []byte {
	b = append(b, in.major, in.minor)
	for id := range 256 {
		meta, ok := in.extensions[byte(id)]
		if !ok {
			continue
		}
		b = append(b, byte(id))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(meta)))
		b = append(b, meta...)
	}
	return b
}

// appendPassword appends a client's credentials: u8 length of the user name, it, and the password.
func appendPassword(user, password string) []byte {
	b := append([]byte{byte(len(user))}, user...)
	return append(b, password...)
}

func parsePassword(b []byte) (user, password string, ok bool) {
	if len(b) < 1 || int(b[0]) > len(b)-1 {
		return "", "", false
	}
	n := int(b[0])
	return string(b[1 : 1+n]), string(b[1+n:]), true
}
