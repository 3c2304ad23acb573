// Package pb reads and writes the few protobuf messages of libp2p's handshakes: public keys, the
// plaintext exchange, the Noise payload. They hold numbers and byte strings only, so a visitor of
// fields is all that is needed, and a generated codec with its runtime is not.
//
// Wire format: protobuf.dev/programming-guides/encoding. A field is a varint tag (number<<3 | type)
// and a value.
package pb

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Wire types of a field.
const (
	varintType = 0
	fixed64    = 1
	bytesType  = 2
	fixed32    = 5
)

// ErrTruncated: the message ends inside a field.
var ErrTruncated = errors.New("protobuf message is cut short")

// A Field is one field as it stands in a message. Of Varint and Bytes only the one that IsBytes
// names is set; a fixed-width value sets neither, as no message here has one.
type Field struct {
	Number  uint64
	IsBytes bool
	Varint  uint64
	Bytes   []byte // aliases the message
}

// Each calls visit with each field of msg in order, and stops at its first error. Fields that
// visit does not know it has to ignore, as a later version of the peer may send them.
func Each(msg []byte, visit func(Field) error) error {
	for len(msg) > 0 {
		f, n, err := next(msg)
		if err != nil {
			return err
		}
		if err := visit(f); err != nil {
			return err
		}
		msg = msg[n:]
	}
	return nil
}

// next reads the field that msg starts with, and how many bytes it takes.
func next(msg []byte) (f Field, size int, err error) {
	tag, n, err := varint(msg)
	if err != nil {
		return f, 0, err
	}
	f.Number = tag >> 3
	if f.Number == 0 || f.Number > 1<<29-1 {
		return f, 0, fmt.Errorf("protobuf field number %d does not exist", f.Number)
	}
	switch rest := msg[n:]; tag & 7 {
	case varintType:
		v, m, err := varint(rest)
		f.Varint = v
		return f, n + m, err
	case bytesType:
		length, m, err := varint(rest)
		if err != nil {
			return f, 0, err
		}
		if length > uint64(len(rest)-m) {
			return f, 0, ErrTruncated
		}
		f.IsBytes, f.Bytes = true, rest[m:m+int(length)]
		return f, n + m + int(length), nil
	case fixed64:
		return fixed(f, n+8, msg)
	case fixed32:
		return fixed(f, n+4, msg)
	default:
		return f, 0, fmt.Errorf("protobuf wire type %d is not supported", tag&7)
	}
}

// fixed skips a fixed-width field that ends at size.
func fixed(f Field, size int, msg []byte) (Field, int, error) {
	if size > len(msg) {
		return f, 0, ErrTruncated
	}
	return f, size, nil
}

func varint(b []byte) (v uint64, n int, err error) {
	v, n = binary.Uvarint(b)
	switch {
	case n == 0:
		return 0, 0, ErrTruncated
	case n < 0:
		return 0, 0, errors.New("protobuf number is larger than 64 bits")
	}
	return v, n, nil
}

// AppendVarint appends a field that is a number.
func AppendVarint(b []byte, number, v uint64) []byte {
	b = binary.AppendUvarint(b, number<<3|varintType)
	return binary.AppendUvarint(b, v)
}

// AppendBytes appends a field that is a string or bytes.
func AppendBytes[T []byte | string](b []byte, number uint64, v T) []byte {
	b = binary.AppendUvarint(b, number<<3|bytesType)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}
