// Tests of keys and peer ids against the specification's vectors and known identities.

package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	secp "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

//go:embed testdata/keys.txt
var vectors string

// vector returns a serialized key of the specification; half is "public" or "private".
func vector(t testing.TB, kind, half string) []byte {
	t.Helper()
	for line := range strings.Lines(vectors) {
		if f := strings.Fields(line); f[0] == kind && f[1] == half {
			b, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no vector for the %s %s key", half, kind)
	return nil
}

func TestVectors(t *testing.T) {
	msg := []byte("what is signed")
	sum := sha256.Sum256(msg)
	data := func(kind string) []byte {
		_, d, err := parseKey(vector(t, kind, "private"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	must := func(sig []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	for kind, sign := range map[string]func() []byte{
		"ed25519": func() []byte {
			k, err := parsePrivateKey(vector(t, "ed25519", "private"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(k.PublicBytes(), vector(t, "ed25519", "public")) || !bytes.Equal(k.marshal(), vector(t, "ed25519", "private")) {
				t.Error("the Ed25519 key is serialized otherwise than in the vectors")
			}
			return k.Sign(msg)
		},
		"secp256k1": func() []byte { return secp.Sign(secp256k1.PrivKeyFromBytes(data("secp256k1")), sum[:]).Serialize() },
		"ecdsa": func() []byte {
			k, err := x509.ParseECPrivateKey(data("ecdsa"))
			if err != nil {
				t.Fatal(err)
			}
			return must(ecdsa.SignASN1(rand.Reader, k, sum[:]))
		},
		"rsa": func() []byte {
			k, err := x509.ParsePKCS1PrivateKey(data("rsa"))
			if err != nil {
				t.Fatal(err)
			}
			return must(rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:]))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			raw := vector(t, kind, "public")
			key, err := ParsePublicKey(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(key.Bytes(), raw) {
				t.Errorf("serialized as %x", key.Bytes())
			}
			prefix := map[string]string{"ed25519": "12D3KooW", "secp256k1": "16Uiu2", "ecdsa": "Qm", "rsa": "Qm"}[kind]
			if id := key.ID().String(); !strings.HasPrefix(id, prefix) {
				t.Errorf("id %s", id)
			}
			sig := sign()
			if err := key.Verify(msg, sig); err != nil {
				t.Errorf("a good signature: %v", err)
			}
			if err := key.Verify(append(msg, '!'), sig); err != ErrSignature {
				t.Errorf("another message: %v", err)
			}
			sig[len(sig)-1] ^= 1
			if err := key.Verify(msg, sig); err != ErrSignature {
				t.Errorf("a changed signature: %v", err)
			}
			if err := key.Verify(msg, nil); err != ErrSignature {
				t.Errorf("no signature: %v", err)
			}
		})
	}
}

func TestKnownIdentities(t *testing.T) {
	for want, seed := range map[string][32]byte{
		"12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN": ZeroSeed(),
		"12D3KooWL3XJ9EMCyZvmmGXL2LMiVBtrVa2BuESsJiXkSj7333Jw": FakeCryptoSeed(),
	} {
		k := FromSeed(seed)
		if k.ID().String() != want {
			t.Errorf("%s, want %s", k.ID(), want)
		}
		if b := k.PublicBytes(); len(b) != 36 || !bytes.HasPrefix(b, []byte{8, 1, 0x12, 0x20}) {
			t.Errorf("serialized as %x", b)
		}
	}
	if a, b := Generate(), Generate(); a.ID() == b.ID() {
		t.Error("two generated keys are equal")
	}
}

func TestParsePublicKeyRefuses(t *testing.T) {
	rsaKey := func(bits int) []byte {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	small := rsaKey(1024)
	_, ecDER, _ := parseKey(vector(t, "ecdsa", "public"))
	for name, b := range map[string][]byte{
		"nothing":               {},
		"no data":               {8, 1},
		"no type":               append([]byte{0x12, 0x20}, make([]byte, 32)...),
		"cut":                   vector(t, "ed25519", "public")[:20],
		"short Ed25519":         serialize(typeEd25519, make([]byte, 31)),
		"unknown type":          serialize(4, make([]byte, 32)),
		"secp256k1 not a point": serialize(typeSecp256k1, bytes.Repeat([]byte{2}, 32)),
		"ECDSA named RSA":       serialize(typeRSA, ecDER),
		"RSA named ECDSA":       serialize(typeECDSA, rsaKey(2048)),
		"RSA not DER":           serialize(typeRSA, []byte{1, 2, 3}),
		"RSA too small":         serialize(typeRSA, small),
		"too long":              serialize(typeEd25519, make([]byte, maxPublicKey)),
	} {
		if _, err := ParsePublicKey(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if (PublicKey{}).Verify(nil, nil) != ErrSignature {
		t.Error("the zero key verifies")
	}
	if k, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader); err != nil {
		t.Fatal(err)
	} else if der, err := x509.MarshalPKIXPublicKey(&k.PublicKey); err != nil {
		t.Fatal(err)
	} else if _, err := ParsePublicKey(serialize(typeECDSA, der)); err != nil {
		t.Errorf("P-384: %v", err)
	}
}

// A key in another order, or with unknown fields, has the id of its canonical form.
func TestIDIsOfCanonicalForm(t *testing.T) {
	raw := vector(t, "ed25519", "public")
	key, err := ParsePublicKey(append(append(append([]byte(nil), raw[2:]...), raw[:2]...), 0x18, 5))
	if err != nil || key.ID() != idOf(raw) {
		t.Errorf("%s, %v", key.ID(), err)
	}
}

func TestParseID(t *testing.T) {
	for _, s := range []string{
		"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
		"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",
	} {
		id, err := ParseID(s)
		if err != nil || id.String() != s {
			t.Errorf("%s became %s, %v", s, id, err)
			continue
		}
		cid := "b" + base32Lower().EncodeToString(append([]byte{1, 0x72}, id...))
		if again, err := ParseID(cid); err != nil || again != id {
			t.Errorf("%s became %s, %v", cid, again, err)
		}
	}
	id, err := ParseID("bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe")
	if want := "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"; err != nil || id.String() != want {
		t.Errorf("the specification's CID became %s, %v", id, err)
	}
	if ID("").String() != "" {
		t.Errorf("the empty id is %q", ID(""))
	}
	for name, s := range map[string]string{
		"empty":           "",
		"not base58":      "1O0Il",
		"cut":             "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5",
		"other prefix":    "zzz",
		"not base32":      "b1",
		"CIDv1 of a file": "b" + base32Lower().EncodeToString(append([]byte{1, 0x70, 0x12, 0x20}, make([]byte, 32)...)),
		"SHA-512":         "b" + base32Lower().EncodeToString(append([]byte{1, 0x72, 0x13, 0x40}, make([]byte, 64)...)),
		"inlined, long":   "b" + base32Lower().EncodeToString(append([]byte{1, 0x72, 0x00, 43}, make([]byte, 43)...)),
		"inlined, empty":  "b" + base32Lower().EncodeToString([]byte{1, 0x72, 0, 0}),
		"too long":        strings.Repeat("1", 1<<20),
	} {
		if id, err := ParseID(s); err == nil {
			t.Errorf("%s: became %s", name, id)
		} else if len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func TestLoadOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	made, warning, err := LoadOrCreate(path)
	if err != nil || warning != "" || made.IsZero() {
		t.Fatalf("creating: %q, %v", warning, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 68 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("files are left over: %v, %v", entries, err)
	}
	loaded, warning, err := LoadOrCreate(path)
	if err != nil || warning != "" || loaded.ID() != made.ID() {
		t.Errorf("loading: %s, %q, %v; want %s", loaded.ID(), warning, err, made.ID())
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, warning, err = LoadOrCreate(path); err != nil || !strings.Contains(warning, "0644") {
		t.Errorf("a key that all can read: %q, %v", warning, err)
	}
	if err := create(path, Generate()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("creating over a key: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	good := vector(t, "ed25519", "private")
	mixed := append([]byte(nil), good...)
	mixed[len(mixed)-1] ^= 1
	_, d, _ := parseKey(good)
	old := serialize(typeEd25519, append(append([]byte(nil), d...), d[32:]...))
	oldMixed := append([]byte(nil), old...)
	oldMixed[len(oldMixed)-1] ^= 1
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"good":            {good, ""},
		"old form":        {old, ""},
		"old form, mixed": {oldMixed, "96 bytes"},
		"empty":           {nil, "missing"},
		"text":            {[]byte("-----BEGIN PRIVATE KEY-----\n"), "does not hold"},
		"RSA":             {vector(t, "rsa", "private"), "only Ed25519"},
		"other's public":  {mixed, "does not belong"},
		"public":          {vector(t, "ed25519", "public"), "32 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, tc.content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := LoadOrCreate(path)
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, tc.content) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if _, _, err := LoadOrCreate(filepath.Join(t.TempDir(), "none", "key")); err == nil {
		t.Error("a key was created in a folder that does not exist")
	}
	if _, _, err := LoadOrCreate(t.TempDir()); err == nil {
		t.Error("a folder was loaded as a key")
	}
}

func FuzzParsePublicKey(f *testing.F) {
	for _, kind := range []string{"ed25519", "secp256k1", "ecdsa", "rsa"} {
		f.Add(vector(f, kind, "public"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := ParsePublicKey(b)
		if err != nil {
			return
		}
		again, err := ParsePublicKey(key.Bytes())
		if err != nil || again.ID() != key.ID() {
			t.Fatalf("%x: %v", b, err)
		}
		if key.Verify([]byte("m"), b) == nil {
			t.Fatal("a signature out of nothing")
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N")
	f.Add("bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe")
	f.Add("1")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if again, err := ParseID(id.String()); err != nil || again != id {
			t.Fatalf("%q became %q, then %q, %v", s, id, again, err)
		}
	})
}
