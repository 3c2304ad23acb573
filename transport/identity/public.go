// Public keys of peers: parsing and verifying the four kinds that libp2p knows.

package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	secp "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"muxperf/transport/internal/pb"
)

// Key types, by their number in the PublicKey message.
const (
	typeRSA       = 0
	typeEd25519   = 1
	typeSecp256k1 = 2
	typeECDSA     = 3
)

// Field numbers of the PublicKey and PrivateKey messages.
const (
	fieldType = 1
	fieldData = 2
)

// RSA moduli outside these are refused, as go-libp2p does: smaller ones can be broken, and larger
// ones let a peer burn our CPU.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// maxPublicKey bounds a serialized key: RSA with 8192 bits takes 1,066 bytes.
const maxPublicKey = 4096

// ErrSignature: a signature does not belong to the message and the key.
var ErrSignature = errors.New("bad signature")

// A PublicKey verifies what a peer signed.
type PublicKey struct {
	kind   uint64
	data   []byte
	verify func(msg, sig []byte) bool
}

// ParsePublicKey reads a PublicKey message: {1 Type varint, 2 Data bytes}. Data is the 32 raw bytes
// of an Ed25519 key, the compressed point of a secp256k1 key, or PKIX in DER for RSA and ECDSA.
// Source: libp2p specs, peer-ids/peer-ids.md.
func ParsePublicKey(b []byte) (PublicKey, error) {
	if len(b) > maxPublicKey {
		return PublicKey{}, fmt.Errorf("public key of %d bytes: at most %d are accepted", len(b), maxPublicKey)
	}
	kind, data, err := parseKey(b)
	if err != nil {
		return PublicKey{}, fmt.Errorf("reading a public key: %w", err)
	}
	verify, err := verifier(kind, data)
	if err != nil {
		return PublicKey{}, fmt.Errorf("reading a public key: %w", err)
	}
	return PublicKey{kind, data, verify}, nil
}

// parseKey reads the message that public and private keys share.
func parseKey(b []byte) (kind uint64, data []byte, err error) {
	var haveKind, haveData bool
	err = pb.Each(b, func(f pb.Field) error {
		switch {
		case f.Number == fieldType && !f.IsBytes:
			kind, haveKind = f.Varint, true
		case f.Number == fieldData && f.IsBytes:
			data, haveData = append([]byte(nil), f.Bytes...), true
		}
		return nil
	})
	if err == nil && !(haveKind && haveData) {
		err = errors.New("type or data is missing")
	}
	return kind, data, err
}

// serialize is the canonical form, of which the peer id is made.
func serialize(kind uint64, data []byte) []byte {
	return pb.AppendBytes(pb.AppendVarint(nil, fieldType, kind), fieldData, data)
}

// verifier returns what verifies signatures of the key.
func verifier(kind uint64, data []byte) (func(msg, sig []byte) bool, error) {
	switch kind {
	case typeEd25519:
		if len(data) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("an Ed25519 key of %d bytes, not %d", len(data), ed25519.PublicKeySize)
		}
		return func(msg, sig []byte) bool { return ed25519.Verify(data, msg, sig) }, nil
	case typeSecp256k1:
		key, err := secp256k1.ParsePubKey(data)
		if err != nil {
			return nil, fmt.Errorf("a secp256k1 key: %w", err)
		}
		return func(msg, sig []byte) bool {
			parsed, err := secp.ParseDERSignature(sig)
			sum := sha256.Sum256(msg)
			return err == nil && parsed.Verify(sum[:], key)
		}, nil
	case typeRSA, typeECDSA:
		return pkixVerifier(kind, data)
	}
	return nil, fmt.Errorf("key type %d is unknown", kind)
}

// pkixVerifier is the verifier of the two kinds that the standard library parses.
func pkixVerifier(kind uint64, der []byte) (func(msg, sig []byte) bool, error) {
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("a key in DER: %w", err)
	}
	switch key := parsed.(type) {
	case *rsa.PublicKey:
		if kind != typeRSA {
			break
		}
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits: %d to %d are accepted", bits, minRSABits, maxRSABits)
		}
		return func(msg, sig []byte) bool {
			sum := sha256.Sum256(msg)
			return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig) == nil
		}, nil
	case *ecdsa.PublicKey:
		if kind != typeECDSA {
			break
		}
		return func(msg, sig []byte) bool {
			sum := sha256.Sum256(msg)
			return ecdsa.VerifyASN1(key, sum[:], sig)
		}, nil
	}
	return nil, fmt.Errorf("key type %d holds a %T", kind, parsed)
}

// Verify returns ErrSignature unless sig signs msg.
func (k PublicKey) Verify(msg, sig []byte) error {
	if k.verify == nil || !k.verify(msg, sig) {
		return ErrSignature
	}
	return nil
}

// Bytes returns the canonical serialized form.
func (k PublicKey) Bytes() []byte { return serialize(k.kind, k.data) }

// ID returns the peer id of the key's owner.
func (k PublicKey) ID() ID { return idOf(k.Bytes()) }
