//go:build !(linux && (amd64 || arm64)) || noopenssl

package aead

import (
	"crypto/cipher"
	"errors"
)

// A libcrypto is not loaded on this system.
type libcrypto struct{ version string }

func loadLibcrypto() (*libcrypto, error) {
	return nil, errors.New("this build does without it")
}

func newHybrid(*libcrypto, []byte, cipher.AEAD) cipher.AEAD { return nil }
