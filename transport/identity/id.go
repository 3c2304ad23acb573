// Peer ids: what they are made of, and their two textual forms.

package identity

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/mr-tron/base58"
)

// An ID is a peer id: the multihash of a serialized public key, as raw bytes. The empty ID stands
// for "any peer". Source: libp2p specs, peer-ids/peer-ids.md, "Peer Ids".
type ID string

const (
	maxInlineKey = 42  // longest serialized key that the id holds itself instead of its hash
	maxIDText    = 128 // the longest id there is has 60 characters; base58 takes quadratic time
	hashIdentity = 0x00
	hashSHA256   = 0x12
	cidVersion1  = 0x01
	codecKey     = 0x72 // multicodec libp2p-key
)

// base32Lower is the multibase "b": RFC 4648 in lower case, without padding.
func base32Lower() *base32.Encoding {
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
}

// String returns the base58btc form (12D3KooW…, 16Uiu2…, Qm…), "" for the empty ID.
func (id ID) String() string { return base58.Encode([]byte(id)) }

// ParseID reads a peer id in base58btc, or as a CIDv1 in base32 (b…).
func ParseID(s string) (ID, error) {
	hash, err := decodeID(s)
	if err == nil {
		err = checkMultihash(hash)
	}
	if err != nil {
		if len(s) > maxIDText {
			s = s[:maxIDText] + "…"
		}
		return "", fmt.Errorf("peer id %q: %w", s, err)
	}
	return ID(hash), nil
}

// decodeID returns the multihash that s stands for.
func decodeID(s string) ([]byte, error) {
	if len(s) > maxIDText {
		return nil, errors.New("too long")
	}
	if strings.HasPrefix(s, "1") || strings.HasPrefix(s, "Qm") {
		return base58.Decode(s)
	}
	if !strings.HasPrefix(s, "b") {
		return nil, errors.New("starts with neither 1, Qm nor b")
	}
	cid, err := base32Lower().DecodeString(s[1:])
	if err != nil {
		return nil, err
	}
	if len(cid) < 2 || cid[0] != cidVersion1 || cid[1] != codecKey {
		return nil, errors.New("is not a CIDv1 of a libp2p key")
	}
	return cid[2:], nil
}

// checkMultihash says whether b is one of the two multihashes that ids use.
func checkMultihash(b []byte) error {
	switch {
	case len(b) < 2 || int(b[1]) != len(b)-2:
		return errors.New("length does not match the hash")
	case b[0] == hashIdentity && b[1] > 0 && b[1] <= maxInlineKey:
		return nil
	case b[0] == hashSHA256 && b[1] == sha256.Size:
		return nil
	}
	return fmt.Errorf("hash 0x%02x of %d bytes is neither an inlined key nor SHA-256", b[0], b[1])
}

// idOf returns the id of a serialized public key.
func idOf(key []byte) ID {
	if len(key) <= maxInlineKey {
		return ID([]byte{hashIdentity, byte(len(key))}) + ID(key)
	}
	sum := sha256.Sum256(key)
	return ID([]byte{hashSHA256, sha256.Size}) + ID(sum[:])
}
