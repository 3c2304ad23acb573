// The payload of the handshake messages: who the peer is, and the muxers it offers.

package noise

import (
	"errors"

	"muxperf/transport/internal/pb"
)

// Field numbers of NoiseHandshakePayload and of NoiseExtensions.
const (
	fieldKey        = 1
	fieldSig        = 2
	fieldExtensions = 4
	fieldMuxers     = 2 // within the extensions
)

// maxMuxers bounds how many of the peer's muxers are kept; there are about four in the world.
const maxMuxers = 64

type payload struct {
	key    []byte // serialized PublicKey
	sig    []byte
	muxers []string
}

// signed is what the identity key signs.
func signed(static []byte) []byte {
	return append([]byte("noise-libp2p-static-key:"), static...)
}

// marshal leaves the extensions out if there is nothing in them.
func (p payload) marshal() []byte {
	var ext []byte
	for _, m := range p.muxers {
		ext = pb.AppendBytes(ext, fieldMuxers, m)
	}
	b := pb.AppendBytes(nil, fieldKey, p.key)
	b = pb.AppendBytes(b, fieldSig, p.sig)
	if len(ext) > 0 {
		b = pb.AppendBytes(b, fieldExtensions, ext)
	}
	return b
}

// parsePayload reads what the peer sent. Unknown fields are skipped.
func parsePayload(b []byte) (p payload, err error) {
	err = pb.Each(b, func(f pb.Field) error {
		if !f.IsBytes {
			return nil
		}
		switch f.Number {
		case fieldKey:
			p.key = f.Bytes
		case fieldSig:
			p.sig = f.Bytes
		case fieldExtensions:
			return pb.Each(f.Bytes, func(e pb.Field) error {
				if e.Number == fieldMuxers && e.IsBytes && len(p.muxers) < maxMuxers {
					p.muxers = append(p.muxers, string(e.Bytes))
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && (len(p.key) == 0 || len(p.sig) == 0) {
		err = errors.New("identity key or signature is missing")
	}
	return p, err
}
