//go:build linux && (amd64 || arm64) && !noopenssl

// OpenSSL's libcrypto, loaded at run time. No C compiler is needed to build, and a machine without
// the library falls back. The build tag noopenssl leaves it out, for a binary that runs without a
// dynamic loader.

package aead

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/crypto/chacha20poly1305"
)

const tagSize = chacha20poly1305.Overhead

// The control commands of EVP_CIPHER_CTX_ctrl (openssl/evp.h).
const (
	ctrlGetTag = 0x10
	ctrlSetTag = 0x11
)

// A libcrypto holds the addresses of the functions that we call.
type libcrypto struct {
	version                              string
	ctxNew, ctxFree, ctxCtrl, algorithm  uintptr
	encryptInit, encryptUpdate, encFinal uintptr
	decryptInit, decryptUpdate, decFinal uintptr
}

// loadLibcrypto finds the library; it is cheap after the first time, as the loader keeps it.
func loadLibcrypto() (*libcrypto, error) {
	var handle uintptr
	var err error
	for _, name := range []string{"libcrypto.so.3", "libcrypto.so.4"} {
		if handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	l := &libcrypto{}
	var version uintptr
	for name, at := range map[string]*uintptr{
		"EVP_CIPHER_CTX_new": &l.ctxNew, "EVP_CIPHER_CTX_free": &l.ctxFree, "EVP_CIPHER_CTX_ctrl": &l.ctxCtrl,
		"EVP_chacha20_poly1305": &l.algorithm, "OpenSSL_version": &version,
		"EVP_EncryptInit_ex": &l.encryptInit, "EVP_EncryptUpdate": &l.encryptUpdate, "EVP_EncryptFinal_ex": &l.encFinal,
		"EVP_DecryptInit_ex": &l.decryptInit, "EVP_DecryptUpdate": &l.decryptUpdate, "EVP_DecryptFinal_ex": &l.decFinal,
	} {
		if *at, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("libcrypto has no %s: %w", name, err)
		}
	}
	var text func(int32) string
	purego.RegisterFunc(&text, version)
	l.version = text(0)
	if r, _, _ := purego.SyscallN(l.algorithm); r == 0 {
		return nil, errors.New("libcrypto has no ChaCha20-Poly1305")
	}
	return l, nil
}

// A hybrid seals small records with x/crypto and large ones with libcrypto.
type hybrid struct {
	small cipher.AEAD
	lib   *libcrypto
	key   [32]byte

	mu   sync.Mutex
	free []*evp // contexts that no goroutine uses now
}

// An evp is a libcrypto context with the key in it, and room for the arguments of a call: they are
// passed as a slice, since a variadic call would allocate one each time.
type evp struct {
	lib    *libcrypto
	ctx    uintptr
	nonce  [12]byte
	length int32
	args   [6]uintptr
}

func newHybrid(lib *libcrypto, key []byte, small cipher.AEAD) cipher.AEAD {
	h := &hybrid{small: small, lib: lib}
	copy(h.key[:], key)
	return h
}

func (h *hybrid) NonceSize() int { return h.small.NonceSize() }
func (h *hybrid) Overhead() int  { return h.small.Overhead() }

// take returns a context that is not in use; nil if libcrypto cannot make one.
func (h *hybrid) take() *evp {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.free); n > 0 {
		e := h.free[n-1]
		h.free = h.free[:n-1]
		return e
	}
	return newEVP(h.lib, &h.key)
}

func (h *hybrid) put(e *evp) {
	h.mu.Lock()
	h.free = append(h.free, e)
	h.mu.Unlock()
}

// newEVP makes a context for one key. Its memory is freed when the garbage collector finds it unused.
func newEVP(lib *libcrypto, key *[32]byte) *evp {
	ctx, _, _ := purego.SyscallN(lib.ctxNew)
	if ctx == 0 {
		return nil
	}
	e := &evp{lib: lib, ctx: ctx}
	runtime.AddCleanup(e, func(ctx uintptr) { purego.SyscallN(lib.ctxFree, ctx) }, ctx)
	algorithm, _, _ := purego.SyscallN(lib.algorithm)
	for _, init := range []uintptr{lib.encryptInit, lib.decryptInit} {
		if r, _, _ := purego.SyscallN(init, ctx, algorithm, 0, uintptr(unsafe.Pointer(key)), 0); int32(r) != 1 {
			return nil
		}
	}
	runtime.KeepAlive(key)
	return e
}

// call calls fn on the context. Pointers among the arguments must be to the heap and kept alive.
func (e *evp) call(fn uintptr, args ...uintptr) bool {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(r) == 1
}

// run does one record: in goes to out, and the tag is made (sealing) or checked (opening) at tag.
func (e *evp) run(seal bool, out, in, nonce, tag []byte) bool {
	copy(e.nonce[:], nonce)
	init, update, final := e.lib.decryptInit, e.lib.decryptUpdate, e.lib.decFinal
	if seal {
		init, update, final = e.lib.encryptInit, e.lib.encryptUpdate, e.lib.encFinal
	}
	a := &e.args
	a[0], a[1], a[2], a[3], a[4] = e.ctx, 0, 0, 0, uintptr(unsafe.Pointer(&e.nonce))
	if !e.call(init, a[:5]...) {
		return false
	}
	setTag := func(cmd uintptr) bool {
		a[0], a[1], a[2], a[3] = e.ctx, cmd, tagSize, uintptr(unsafe.Pointer(&tag[0]))
		return e.call(e.lib.ctxCtrl, a[:4]...)
	}
	if !seal && !setTag(ctrlSetTag) {
		return false
	}
	a[0], a[1], a[2] = e.ctx, uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&e.length))
	a[3], a[4] = uintptr(unsafe.Pointer(&in[0])), uintptr(len(in))
	if !e.call(update, a[:5]...) {
		return false
	}
	a[0], a[1], a[2] = e.ctx, uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&e.length))
	ok := e.call(final, a[:3]...) && (!seal || setTag(ctrlGetTag))
	runtime.KeepAlive(out)
	runtime.KeepAlive(in)
	runtime.KeepAlive(tag)
	return ok
}

// Seal encrypts and authenticates plaintext, appends the result to dst and returns it.
func (h *hybrid) Seal(dst, nonce, plaintext, additional []byte) []byte {
	if len(plaintext) < crossover || len(additional) > 0 {
		return h.small.Seal(dst, nonce, plaintext, additional)
	}
	e := h.take()
	if e == nil {
		return h.small.Seal(dst, nonce, plaintext, additional)
	}
	out, tail := extend(dst, len(plaintext)+tagSize)
	ok := e.run(true, tail, plaintext, nonce, tail[len(plaintext):])
	h.put(e)
	if !ok { // libcrypto has no reason to fail here; if it does, nothing of it is used
		return h.small.Seal(dst, nonce, plaintext, additional)
	}
	return out
}

// errOpen says no more than that, as is the custom for AEADs.
var errOpen = errors.New("chacha20poly1305: message authentication failed")

// Open decrypts ciphertext, appends the plaintext to dst and returns it. Nothing of a record that was
// changed is left in dst.
func (h *hybrid) Open(dst, nonce, ciphertext, additional []byte) ([]byte, error) {
	if len(ciphertext) < crossover || len(additional) > 0 {
		return h.small.Open(dst, nonce, ciphertext, additional)
	}
	e := h.take()
	if e == nil {
		return h.small.Open(dst, nonce, ciphertext, additional)
	}
	n := len(ciphertext) - tagSize
	out, tail := extend(dst, n)
	ok := e.run(false, tail, ciphertext[:n], nonce, ciphertext[n:])
	h.put(e)
	if !ok {
		clear(tail)
		return nil, errOpen
	}
	return out, nil
}

// extend makes room for n more bytes after dst and returns the whole and the new part.
func extend(dst []byte, n int) (whole, tail []byte) {
	if total := len(dst) + n; cap(dst) >= total {
		whole = dst[:total]
	} else {
		whole = make([]byte, total)
		copy(whole, dst)
	}
	return whole, whole[len(dst):]
}
