// Package identity holds what tells peers apart: keys, peer ids, and the forms of address that
// name a peer and how to reach it.
//
// Our own keys are Ed25519, the default of every libp2p implementation and the only kind that
// fits rust-libp2p's limit for the plaintext exchange. Peers may have any of the four kinds.
package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A PrivateKey is our own Ed25519 key. The zero value is no key; it has no methods but IsZero.
type PrivateKey struct {
	key ed25519.PrivateKey
}

// Generate returns a new random key.
func Generate() PrivateKey {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails: crypto/rand ends the program instead
	return FromSeed(seed)
}

// FromSeed returns the key of an RFC 8032 seed.
func FromSeed(seed [32]byte) PrivateKey {
	return PrivateKey{ed25519.NewKeyFromSeed(seed[:])}
}

// FakeCryptoSeed returns the seed of libp2p-perf's --fake-crypto-seed: the first 32 bytes of Go's
// math/rand with seed 0. Its peer id is 12D3KooWL3XJ9EMCyZvmmGXL2LMiVBtrVa2BuESsJiXkSj7333Jw.
func FakeCryptoSeed() [32]byte {
	return [32]byte{
		0x01, 0x94, 0xfd, 0xc2, 0xfa, 0x2f, 0xfc, 0xc0, 0x41, 0xd3, 0xff, 0x12, 0x04, 0x5b, 0x73, 0xc8,
		0x6e, 0x4f, 0xf9, 0x5f, 0xf6, 0x62, 0xa5, 0xee, 0xe8, 0x2a, 0xbd, 0xf4, 0x4a, 0x2d, 0x0b, 0x75,
	}
}

// ZeroSeed returns the seed that libp2p's perf harness expects of servers: 32 zero bytes. Its peer
// id is 12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN.
func ZeroSeed() [32]byte { return [32]byte{} }

// IsZero says whether there is no key.
func (k PrivateKey) IsZero() bool { return k.key == nil }

// ID returns our peer id.
func (k PrivateKey) ID() ID { return idOf(k.PublicBytes()) }

// Sign returns the 64-byte signature of msg.
func (k PrivateKey) Sign(msg []byte) []byte { return ed25519.Sign(k.key, msg) }

// PublicBytes returns the public key as a serialized PublicKey message: 08 01 12 20 and 32 bytes.
func (k PrivateKey) PublicBytes() []byte {
	return serialize(typeEd25519, k.key[ed25519.SeedSize:])
}

// marshal returns the PrivateKey message: the seed and the public key, 68 bytes in all. It is what
// libp2p implementations keep on disk.
func (k PrivateKey) marshal() []byte { return serialize(typeEd25519, k.key) }

// parsePrivateKey reads a PrivateKey message. Data is seed and public key; old libp2p versions
// wrote the public key twice.
func parsePrivateKey(b []byte) (PrivateKey, error) {
	kind, data, err := parseKey(b)
	if err != nil {
		return PrivateKey{}, err
	}
	if kind != typeEd25519 {
		return PrivateKey{}, fmt.Errorf("key type %d, only Ed25519 (%d) can be used", kind, typeEd25519)
	}
	const seed, pub = ed25519.SeedSize, ed25519.PublicKeySize
	if len(data) == seed+2*pub && bytes.Equal(data[seed:seed+pub], data[seed+pub:]) {
		data = data[:seed+pub]
	}
	if len(data) != seed+pub {
		return PrivateKey{}, fmt.Errorf("an Ed25519 key of %d bytes, not %d", len(data), seed+pub)
	}
	k := FromSeed([32]byte(data[:seed]))
	if !bytes.Equal(k.key, data) {
		return PrivateKey{}, errors.New("the public key does not belong to the private one")
	}
	return k, nil
}

// LoadOrCreate reads the key in the file at path; if there is none, it makes one and stores it with
// mode 0600. The file is a serialized libp2p PrivateKey message. The warning is not empty if others
// than the owner can read the file.
func LoadOrCreate(path string) (key PrivateKey, warning string, err error) {
	key, warning, err = load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, warning, err
	}
	err = create(path, Generate())
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process may have been first
		return PrivateKey{}, "", fmt.Errorf("creating the key file: %w", err)
	}
	return load(path)
}

// load reads an existing key file.
func load(path string) (PrivateKey, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return PrivateKey{}, "", fmt.Errorf("reading the key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return PrivateKey{}, "", fmt.Errorf("reading the key file: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPublicKey))
	if err != nil {
		return PrivateKey{}, "", fmt.Errorf("reading the key file: %w", err)
	}
	key, err := parsePrivateKey(b)
	if err != nil {
		return PrivateKey{}, "", fmt.Errorf("the key file %s does not hold a libp2p Ed25519 private key: %w", path, err)
	}
	var warning string
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		warning = fmt.Sprintf("the key file %s can be used by others (mode %04o): chmod 600 it", path, mode)
	}
	return key, warning, nil
}

// create stores key at path, whole or not at all; fs.ErrExist if the file has appeared meanwhile.
func create(path string, key PrivateKey) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(key.marshal())
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Link(tmp.Name(), path) // unlike a rename, never replaces a file
}
