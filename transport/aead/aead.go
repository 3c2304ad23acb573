// Package aead chooses the ChaCha20-Poly1305 that seals Noise records.
//
// The AEAD is most of what a Noise connection costs, so the fastest well-kept implementation at hand
// is used for each record: OpenSSL's libcrypto has AVX-512 code for both halves of the cipher and is
// about half as fast again as golang.org/x/crypto on large records, while a call into it costs about
// two microseconds, so small records stay with x/crypto. Both compute the same function (RFC 8439);
// a peer cannot tell which one was used. docs/performance.md has the figures.
package aead

import (
	"crypto/cipher"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// The choices, as --aead names them.
const (
	Auto    = "auto"
	OpenSSL = "openssl"
	Go      = "go"
)

// crossover is the record size, in bytes, from which libcrypto is faster than x/crypto.
const crossover = 6 << 10

// A Provider makes AEADs; the zero value makes x/crypto's. It is safe for concurrent use.
type Provider struct {
	lib *libcrypto // nil: x/crypto only
}

// Choose makes a provider of the kind named. Auto takes OpenSSL if this machine has it; asking for it
// where it is not is an error.
func Choose(name string) (Provider, error) {
	switch name {
	case Go:
		return Provider{}, nil
	case Auto, "":
		lib, err := loadLibcrypto()
		if err != nil {
			return Provider{}, nil
		}
		return Provider{lib}, nil
	case OpenSSL:
		lib, err := loadLibcrypto()
		if err != nil {
			return Provider{}, fmt.Errorf("loading OpenSSL's libcrypto: %w", err)
		}
		return Provider{lib}, nil
	}
	return Provider{}, fmt.Errorf("there is no AEAD %q: choose auto, openssl or go", name)
}

// Name says what seals large records, for results.
func (p Provider) Name() string {
	if p.lib == nil {
		return "golang.org/x/crypto"
	}
	return p.lib.version
}

// New makes an AEAD for a key of 32 bytes. It may be used by several goroutines at once.
func (p Provider) New(key []byte) (cipher.AEAD, error) {
	small, err := chacha20poly1305.New(key)
	if err != nil || p.lib == nil {
		return small, err
	}
	return newHybrid(p.lib, key, small), nil
}
