package transport

import "errors"

// The kinds of failure that callers tell apart. Layers wrap them with what was being done; the
// commands turn them into exit codes.
var (
	// ErrProtocol: the peer does not speak the protocol proposed (multistream `na`).
	ErrProtocol = errors.New("protocol not supported by the peer")
	// ErrPeerID: the peer proved another identity than the one dialed.
	ErrPeerID = errors.New("peer id mismatch")
	// ErrHandshake: the peer's bytes are not those of the layer that was being set up.
	ErrHandshake = errors.New("handshake failed")
	// ErrRefused: the peer answered, and said no (limit, allow-list, token, policy).
	ErrRefused = errors.New("refused by the peer")
	// ErrReset: the peer abandoned the stream.
	ErrReset = errors.New("stream reset by the peer")
	// ErrNoHalfClose: the muxer cannot close one direction alone.
	ErrNoHalfClose = errors.New("this muxer has no half-close")
)
