package aead

import (
	"bytes"
	"crypto/cipher"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// pair makes the AEAD under test and the reference, with the same key.
func pair(t testing.TB, name string) (under, reference cipher.AEAD) {
	t.Helper()
	p, err := Choose(name)
	if err != nil {
		t.Skipf("not on this machine: %v", err)
	}
	key := bytes.Repeat([]byte{7}, 32)
	if under, err = p.New(key); err != nil {
		t.Fatal(err)
	}
	reference, err = chacha20poly1305.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return under, reference
}

func text(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestSameBytesAsTheReference(t *testing.T) {
	under, reference := pair(t, OpenSSL)
	for _, n := range []int{0, 1, 17, crossover - 1, crossover, crossover + 1, 16384, 65519} {
		plain, nonce := text(n), text(12)
		sealed := under.Seal([]byte("head"), nonce, plain, nil)
		if want := reference.Seal([]byte("head"), nonce, plain, nil); !bytes.Equal(sealed, want) {
			t.Fatalf("%d bytes are sealed differently", n)
		}
		got, err := under.Open(nil, nonce, sealed[4:], nil)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes did not come back: %v", n, err)
		}
		inPlace := bytes.Clone(sealed[4:])
		if got, err = under.Open(inPlace[:0], nonce, inPlace, nil); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes did not come back in place: %v", n, err)
		}
		buf := append(bytes.Clone(plain), make([]byte, 16)...)
		if got := under.Seal(buf[:0], nonce, buf[:n], nil); !bytes.Equal(got, sealed[4:]) {
			t.Errorf("%d bytes are sealed differently in place", n)
		}
	}
}

func TestChangedRecordsAreRefusedAndLeaveNothing(t *testing.T) {
	under, _ := pair(t, OpenSSL)
	for _, n := range []int{100, 65519} {
		plain, nonce := text(n), text(12)
		sealed := under.Seal(nil, nonce, plain, nil)
		for _, at := range []int{0, n / 2, n - 1, n, n + 15} {
			bad := bytes.Clone(sealed)
			bad[at] ^= 1
			dst := make([]byte, 0, n)
			if _, err := under.Open(dst, nonce, bad, nil); err == nil {
				t.Fatalf("byte %d of %d was changed and nobody noticed", at, n)
			}
			if !bytes.Equal(dst[:n], make([]byte, n)) {
				t.Errorf("byte %d of %d: plaintext was left behind", at, n)
			}
		}
		if _, err := under.Open(nil, nonce, sealed, nil); err != nil {
			t.Errorf("after a failure the good record is refused: %v", err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	under, reference := pair(t, OpenSSL)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			plain, nonce := text(20000+i), text(12)
			nonce[0] = byte(i)
			want := reference.Seal(nil, nonce, plain, nil)
			for range 50 {
				if !bytes.Equal(under.Seal(nil, nonce, plain, nil), want) {
					t.Error("sealed differently beside others")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	under, _ := pair(t, OpenSSL)
	plain, nonce := text(65519), text(12)
	buf, out := make([]byte, 0, 65535), make([]byte, 0, 65535)
	sealed := under.Seal(buf, nonce, plain, nil)
	if n := testing.AllocsPerRun(100, func() {
		under.Seal(buf, nonce, plain, nil)
		under.Open(out, nonce, sealed, nil)
	}); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	if _, err := Choose("rot13"); err == nil {
		t.Error("rot13 was chosen")
	}
	if p, err := Choose(Go); err != nil || p.Name() != "golang.org/x/crypto" {
		t.Errorf("%q, %v", p.Name(), err)
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, name := range []string{Go, OpenSSL} {
		for _, n := range []int{1024, 4096, 6 << 10, 8192, 16384, 65519} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				under, _ := pair(b, name)
				buf, nonce := text(n), text(12)
				out := make([]byte, 0, n+16)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					under.Seal(out, nonce, buf, nil)
				}
			})
		}
	}
}
