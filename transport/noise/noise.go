// Package noise is libp2p's /noise: Noise_XX_25519_ChaChaPoly_SHA256 with the peers' identity keys
// signed into the handshake.
//
//	-> e                          empty payload
//	<- e, ee, s, es               the responder's payload
//	-> s, se                      the initiator's payload
//
// Every message, of the handshake and after it, is a big-endian u16 length and that many bytes. A
// payload is {1 identity_key bytes, 2 identity_sig bytes, 4 extensions {2 stream_muxers rep. string}},
// where the signature is over "noise-libp2p-static-key:" and the 32-byte static key. The static key
// is fresh for each handshake: nothing outlives it but the identity key.
//
// Both sides list their muxers. If the lists meet, the muxer starts right after the handshake;
// otherwise it is negotiated inside the channel. Both sides have to come to the same conclusion,
// so that it is computed from both lists: the first of the initiator's that the responder has.
//
// Source: libp2p specs, noise/README.md; noiseprotocol.org/noise.html.
package noise

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/flynn/noise"
	"muxperf/transport"
	"muxperf/transport/aead"
	"muxperf/transport/identity"
	"muxperf/transport/internal/handshake"
)

// Protocol is the name under which the layer is negotiated.
const Protocol = "/noise"

const (
	minHello = 32           // e: shortest first message
	minReply = 32 + 48 + 16 // e, s with its tag, tag of the payload
	minFinal = 48 + 16      // s with its tag, tag of the payload

	// maxHandshake bounds a handshake message. With RSA-8192 it has about 2,300 bytes. The start of
	// text, TLS or multistream-select is more than this when taken for a length (0x132f at least),
	// so that it is noticed at once instead of waited for.
	maxHandshake = 4096
)

// Config says who we are, whom we expect and what we offer.
type Config struct {
	Key     identity.PrivateKey
	Remote  identity.ID   // the peer that was dialed; "" for any
	Muxers  []string      // offered during the handshake, best first; none leaves the choice to later
	Workers int           // goroutines that seal, and that open, one record each; 0 chooses by the cores
	AEAD    aead.Provider // what seals them; the zero value is x/crypto
}

// Client runs the initiator's side on conn, within ctx. The error wraps transport.ErrHandshake or
// transport.ErrPeerID; after one, the caller closes conn.
func Client(ctx context.Context, conn net.Conn, cfg Config) (*transport.Secured, error) {
	return secure(ctx, conn, cfg, true)
}

// Server runs the responder's side.
func Server(ctx context.Context, conn net.Conn, cfg Config) (*transport.Secured, error) {
	return secure(ctx, conn, cfg, false)
}

func secure(ctx context.Context, conn net.Conn, cfg Config, initiator bool) (*transport.Secured, error) {
	if cfg.Key.IsZero() {
		return nil, errors.New("noise: no identity key is set")
	}
	stop := handshake.Interruptible(ctx, conn)
	s := session{conn: conn, cfg: cfg, initiator: initiator}
	err := s.run()
	if cause := stop(); cause != nil {
		return nil, fmt.Errorf("noise handshake: %w", cause)
	}
	if err != nil {
		return nil, fmt.Errorf("noise handshake: %w", err)
	}
	secured, err := s.channel()
	if err != nil {
		return nil, fmt.Errorf("noise: %w", err)
	}
	return &transport.Secured{Conn: secured, LocalPeer: cfg.Key.ID().String(), RemotePeer: s.peer.String(), Muxer: s.muxer}, nil
}

// A session is one handshake under way.
type session struct {
	conn      net.Conn
	cfg       Config
	initiator bool

	state    *noise.HandshakeState
	static   noise.DHKey
	up, down *noise.CipherState // initiator to responder, and back; set by the last message

	peer  identity.ID
	muxer string
}

// run exchanges the three messages.
func (s *session) run() (err error) {
	suite := noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashSHA256)
	if s.static, err = suite.GenerateKeypair(rand.Reader); err != nil {
		return fmt.Errorf("making a static key: %w", err)
	}
	s.state, err = noise.NewHandshakeState(noise.Config{
		CipherSuite: suite, Pattern: noise.HandshakeXX, Initiator: s.initiator, StaticKeypair: s.static,
	})
	if err != nil {
		return err
	}
	if s.initiator {
		return s.initiate()
	}
	return s.respond()
}

func (s *session) initiate() error {
	if err := s.send("first", nil); err != nil {
		return err
	}
	received, err := s.receive("second", minReply)
	if err != nil {
		return err
	}
	// The peer is checked before it learns who we are.
	if err := s.verify(received); err != nil {
		return err
	}
	return s.send("third", s.identity())
}

func (s *session) respond() error {
	if _, err := s.receive("first", minHello); err != nil {
		return err
	}
	if err := s.send("second", s.identity()); err != nil {
		return err
	}
	received, err := s.receive("third", minFinal)
	if err != nil {
		return err
	}
	return s.verify(received)
}

// identity is our payload, serialized.
func (s *session) identity() []byte {
	return payload{
		key:    s.cfg.Key.PublicBytes(),
		sig:    s.cfg.Key.Sign(signed(s.static.Public)),
		muxers: s.cfg.Muxers,
	}.marshal()
}

// verify reads the peer's payload: it has to hold a key that signed the peer's static key. It sets
// peer and muxer.
func (s *session) verify(b []byte) error {
	p, err := parsePayload(b)
	if err != nil {
		return fmt.Errorf("%w: the peer's payload: %w", transport.ErrHandshake, err)
	}
	key, err := identity.ParsePublicKey(p.key)
	if err != nil {
		return fmt.Errorf("%w: the peer's identity: %w", transport.ErrHandshake, err)
	}
	if err := key.Verify(signed(s.state.PeerStatic()), p.sig); err != nil {
		return fmt.Errorf("%w: the peer does not own the identity %s: %w", transport.ErrHandshake, key.ID(), err)
	}
	s.peer = key.ID()
	ours, theirs := s.cfg.Muxers, p.muxers
	if !s.initiator {
		ours, theirs = theirs, ours
	}
	s.muxer = firstCommon(ours, theirs)
	return handshake.CheckPeer(s.cfg.Remote, s.peer)
}

// firstCommon returns the first of the initiator's muxers that the responder has, or "".
func firstCommon(initiator, responder []string) string {
	for _, m := range initiator {
		if m != "" && slices.Contains(responder, m) {
			return m
		}
	}
	return ""
}

// send writes the next handshake message.
func (s *session) send(which string, content []byte) error {
	msg, up, down, err := s.state.WriteMessage(make([]byte, 2, 512), content)
	if err != nil {
		return fmt.Errorf("building the %s message: %w", which, err)
	}
	if len(msg)-2 > maxHandshake {
		return fmt.Errorf("the %s message would have %d bytes: too many muxers", which, len(msg)-2)
	}
	binary.BigEndian.PutUint16(msg, uint16(len(msg)-2))
	if _, err := s.conn.Write(msg); err != nil {
		return fmt.Errorf("sending the %s message: %w", which, err)
	}
	s.up, s.down = up, down
	return nil
}

// receive reads the peer's next message of at least least bytes and returns its payload.
func (s *session) receive(which string, least int) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(s.conn, size[:]); err != nil {
		if err == io.EOF {
			return nil, fmt.Errorf("%w: the peer closed the connection instead of sending the %s message: %w", transport.ErrHandshake, which, err)
		}
		return nil, fmt.Errorf("%w: reading the %s message: %w", transport.ErrHandshake, which, err)
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n < least || n > maxHandshake {
		return nil, fmt.Errorf("%w: the peer's %s message is not Noise: %s", transport.ErrHandshake, which, describe(size))
	}
	msg := make([]byte, n)
	if _, err := io.ReadFull(s.conn, msg); err != nil {
		return nil, fmt.Errorf("%w: reading the %s message: %w", transport.ErrHandshake, which, err)
	}
	content, up, down, err := s.state.ReadMessage(nil, msg)
	if err != nil {
		return nil, fmt.Errorf("%w: decrypting the %s message: %w", transport.ErrHandshake, which, err)
	}
	s.up, s.down = up, down
	return content, nil
}

// describe says what two bytes that are no length of a message may be.
func describe(b [2]byte) string {
	text := func(c byte) bool { return c >= ' ' && c < 0x7f }
	switch {
	case text(b[0]) && text(b[1]):
		return fmt.Sprintf("it answered with text, starting with %q", b)
	case b == [2]byte{0x13, '/'}:
		return "it speaks multistream-select at this point"
	case b[0] >= 0x14 && b[0] <= 0x17 && b[1] == 3:
		return "it speaks TLS"
	}
	return fmt.Sprintf("it starts with 0x%02x 0x%02x, a length of %d", b[0], b[1], binary.BigEndian.Uint16(b[:]))
}

// channel makes the secured connection of the keys that the handshake has split off. The AEADs are
// built here rather than taken from the CipherStates, which allocate a nonce for each record.
func (s *session) channel() (net.Conn, error) {
	out, in := s.up, s.down
	if !s.initiator {
		out, in = in, out
	}
	outKey, inKey := out.UnsafeKey(), in.UnsafeKey()
	seal, err := s.cfg.AEAD.New(outKey[:])
	if err != nil {
		return nil, err
	}
	open, err := s.cfg.AEAD.New(inKey[:])
	if err != nil {
		return nil, err
	}
	return newConn(s.conn, seal, open, s.cfg.Workers), nil
}
