// Tests of the handshake: both sides against each other, against bytes and payloads made by hand,
// and against peers that speak something else.

package noise

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flynn/noise"

	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/internal/pb"
)

type outcome struct {
	sec *transport.Secured
	err error
}

// shake runs both sides over a and b.
func shake(ctx context.Context, a, b net.Conn, client, server Config) (c, s outcome) {
	done := make(chan outcome, 1)
	go func() {
		sec, err := Server(ctx, b, server)
		if err != nil {
			b.Close()
		}
		done <- outcome{sec, err}
	}()
	c.sec, c.err = Client(ctx, a, client)
	if c.err != nil {
		a.Close()
	}
	return c, <-done
}

func TestHandshake(t *testing.T) {
	const yamux, wisp = "/yamux/1.0.0", "/wisp/2.0.0"
	for _, tc := range []struct {
		name           string
		client, server []string
		want           string
	}{
		{"no muxers", nil, nil, ""},
		{"one side only", []string{yamux}, nil, ""},
		{"other side only", nil, []string{yamux}, ""},
		{"same", []string{yamux}, []string{yamux}, yamux},
		{"the initiator's order", []string{wisp, yamux}, []string{yamux, wisp}, wisp},
		{"none in common", []string{wisp}, []string{yamux}, ""},
		{"empty names", []string{""}, []string{""}, ""},
	} {
		for _, carrier := range []string{"pipe", "tcp"} {
			t.Run(tc.name+" "+carrier, func(t *testing.T) {
				a, b := net.Pipe()
				if carrier == "tcp" {
					a, b = tcpPair(t)
				}
				ck, sk := testKey(1), testKey(2)
				c, s := shake(testContext(t), a, b,
					Config{Key: ck, Remote: sk.ID(), Muxers: tc.client}, Config{Key: sk, Muxers: tc.server})
				if c.err != nil || s.err != nil {
					t.Fatal(c.err, s.err)
				}
				defer c.sec.Close()
				defer s.sec.Close()
				if c.sec.Muxer != tc.want || s.sec.Muxer != tc.want {
					t.Errorf("muxers %q and %q, want %q", c.sec.Muxer, s.sec.Muxer, tc.want)
				}
				ids := []string{c.sec.LocalPeer, s.sec.RemotePeer, c.sec.RemotePeer, s.sec.LocalPeer}
				if want := []string{ck.ID().String(), ck.ID().String(), sk.ID().String(), sk.ID().String()}; !slices.Equal(ids, want) {
					t.Errorf("peers %v, want %v", ids, want)
				}
				for _, way := range [][2]net.Conn{{c.sec, s.sec}, {s.sec, c.sec}} {
					go way[0].Write([]byte("hello"))
					buf := make([]byte, 5)
					if _, err := io.ReadFull(way[1], buf); err != nil || string(buf) != "hello" {
						t.Fatalf("read %q, %v", buf, err)
					}
				}
			})
		}
	}
}

func TestWrongPeer(t *testing.T) {
	a, b := tcpPair(t)
	c, s := shake(testContext(t), a, b, Config{Key: testKey(1), Remote: testKey(3).ID()}, Config{Key: testKey(2)})
	if !errors.Is(c.err, transport.ErrPeerID) {
		t.Fatalf("client: %v", c.err)
	}
	for _, id := range []identity.ID{testKey(3).ID(), testKey(2).ID()} {
		if !strings.Contains(c.err.Error(), id.String()) {
			t.Errorf("%q does not name %s", c.err, id)
		}
	}
	if !errors.Is(s.err, transport.ErrHandshake) {
		t.Errorf("server: %v", s.err)
	}
}

// What a peer may send in place of the second message, and what the error has to say.
func TestNotNoise(t *testing.T) {
	for name, tc := range map[string]struct{ answer, want string }{
		"text":        {"HTTP/1.1 400 Bad Request\r\n\r\n", "text"},
		"multistream": {"\x13/multistream/1.0.0\n", "multistream"},
		"tls":         {"\x15\x03\x01\x00\x02\x02\x46", "TLS"},
		"zeroes":      {"\x00\x00\x00", "length of 0"},
		"too short":   {"\x00\x5f" + strings.Repeat("x", 95), "length of 95"},
		"too long":    {"\x20\x00", "0x20 0x00"},
		"garbage":     {"\x00\xd8" + strings.Repeat("x", 216), "decrypting the second"},
		"closed":      {"", "closed the connection instead"},
		"cut":         {"\x00\xd8xx", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			go func() {
				io.ReadFull(b, make([]byte, 34))
				b.Write([]byte(tc.answer))
				b.(*net.TCPConn).CloseWrite()
			}()
			_, err := Client(testContext(t), a, Config{Key: testKey(1)})
			if !errors.Is(err, transport.ErrHandshake) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want ErrHandshake with %q", err, tc.want)
			}
		})
	}
}

func TestHandshakeEndsWithContext(t *testing.T) {
	why := errors.New("nobody there")
	for _, side := range []func(context.Context, net.Conn, Config) (*transport.Secured, error){Client, Server} {
		a, _ := tcpPair(t)
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, why)
		if _, err := side(ctx, a, Config{Key: testKey(1)}); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		cancel()
	}
}

func TestNoKey(t *testing.T) {
	a, _ := tcpPair(t)
	if _, err := Client(testContext(t), a, Config{}); err == nil {
		t.Error("a handshake without a key succeeded")
	}
}

// byHand plays an initiator whose payload is made by hand. It returns the lengths of the messages,
// and the library's own ciphers for what follows.
func byHand(conn net.Conn, content func(static []byte) []byte) (sizes []int, up, down *noise.CipherState, err error) {
	suite := noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashSHA256)
	static, err := suite.GenerateKeypair(rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	hs, err := noise.NewHandshakeState(noise.Config{CipherSuite: suite, Pattern: noise.HandshakeXX, Initiator: true, StaticKeypair: static})
	if err != nil {
		return nil, nil, nil, err
	}
	msg, _, _, err := hs.WriteMessage([]byte{0, 32}, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	conn.Write(msg)
	sizes = append(sizes, len(msg)-2)
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, nil, nil, err
	}
	msg = make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, msg); err != nil {
		return nil, nil, nil, err
	}
	sizes = append(sizes, len(msg))
	if _, _, _, err := hs.ReadMessage(nil, msg); err != nil {
		return nil, nil, nil, err
	}
	msg, up, down, err = hs.WriteMessage([]byte{0, 0}, content(static.Public))
	if err != nil {
		return nil, nil, nil, err
	}
	binary.BigEndian.PutUint16(msg, uint16(len(msg)-2))
	sizes = append(sizes, len(msg)-2)
	_, err = conn.Write(msg)
	return sizes, up, down, err
}

// The sizes are those that real libp2p peers send with Ed25519 keys and /yamux/1.0.0 offered.
func TestMessageSizes(t *testing.T) {
	for _, tc := range []struct {
		muxers []string
		want   []int
	}{
		{[]string{"/yamux/1.0.0"}, []int{32, 216, 184}},
		{nil, []int{32, 200, 168}},
	} {
		a, b := tcpPair(t)
		key := testKey(1)
		done := make(chan outcome, 1)
		go func() {
			sec, err := Server(testContext(t), b, Config{Key: testKey(2), Muxers: tc.muxers})
			done <- outcome{sec, err}
		}()
		sizes, _, _, err := byHand(a, func(static []byte) []byte {
			return payload{key.PublicBytes(), key.Sign(signed(static)), tc.muxers}.marshal()
		})
		if err != nil || !slices.Equal(sizes, tc.want) {
			t.Errorf("messages of %v bytes, %v; want %v", sizes, err, tc.want)
		}
		if o := <-done; o.err != nil {
			t.Error(o.err)
		} else {
			o.sec.Close()
		}
	}
}

// Records are what the Noise library itself makes and reads: direction, nonces, length and tag.
func TestRecordsAreTheLibrarys(t *testing.T) {
	a, b := tcpPair(t)
	key := testKey(1)
	done := make(chan outcome, 1)
	go func() {
		sec, err := Server(testContext(t), b, Config{Key: testKey(2)})
		done <- outcome{sec, err}
	}()
	_, up, down, err := byHand(a, func(static []byte) []byte {
		return payload{key: key.PublicBytes(), sig: key.Sign(signed(static))}.marshal()
	})
	if err != nil {
		t.Fatal(err)
	}
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.sec.Close()
	for range 3 {
		rec, err := up.Encrypt([]byte{0, 5 + tagSize}, nil, []byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		a.Write(rec)
		buf := make([]byte, 10)
		if n, err := o.sec.Read(buf); err != nil || string(buf[:n]) != "hello" {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
	}
	want := pattern(maxPlain + 10)
	if _, err := o.sec.Write(want); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, size := range []int{maxMessage, 10 + tagSize} {
		rec := make([]byte, 2+size)
		if _, err := io.ReadFull(a, rec); err != nil {
			t.Fatal(err)
		}
		if int(binary.BigEndian.Uint16(rec)) != size {
			t.Fatalf("a record of length %x, want %d", rec[:2], size)
		}
		if got, err = down.Decrypt(got, nil, rec[2:]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("the plaintext differs")
	}
}

func TestPayloadsByHand(t *testing.T) {
	key, other := testKey(1), testKey(3)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&ec.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	ecKey := pb.AppendBytes(pb.AppendVarint(nil, 1, 3), 2, der)
	for name, tc := range map[string]struct {
		content func(static []byte) []byte
		want    string // "" for success
	}{
		"good": {func(s []byte) []byte { return payload{key: key.PublicBytes(), sig: key.Sign(signed(s))}.marshal() }, ""},
		"ECDSA": {func(s []byte) []byte {
			sum := sha256.Sum256(signed(s))
			sig, _ := ecdsa.SignASN1(rand.Reader, ec, sum[:])
			return payload{key: ecKey, sig: sig}.marshal()
		}, ""},
		"unknown fields": {func(s []byte) []byte {
			ext := pb.AppendBytes(pb.AppendBytes(pb.AppendVarint(nil, 77, 1), 1, "hash"), 2, "/yamux/1.0.0")
			b := pb.AppendVarint(pb.AppendBytes(nil, 3, "data"), 99, 5)
			b = append(b, payload{key: key.PublicBytes(), sig: key.Sign(signed(s))}.marshal()...)
			return pb.AppendBytes(b, 4, ext)
		}, ""},
		"empty":          {func([]byte) []byte { return nil }, "missing"},
		"no signature":   {func([]byte) []byte { return pb.AppendBytes(nil, 1, key.PublicBytes()) }, "missing"},
		"not a protobuf": {func([]byte) []byte { return []byte{0xff} }, "cut short"},
		"not a key":      {func(s []byte) []byte { return payload{key: []byte{8, 9}, sig: []byte{1}}.marshal() }, "identity"},
		"other's key":    {func(s []byte) []byte { return payload{key: other.PublicBytes(), sig: key.Sign(signed(s))}.marshal() }, "does not own"},
		"other static": {func(s []byte) []byte {
			return payload{key: key.PublicBytes(), sig: key.Sign(signed(make([]byte, 32)))}.marshal()
		}, "does not own"},
		"unprefixed":      {func(s []byte) []byte { return payload{key: key.PublicBytes(), sig: key.Sign(s)}.marshal() }, "does not own"},
		"short signature": {func(s []byte) []byte { return payload{key: key.PublicBytes(), sig: []byte{1}}.marshal() }, "does not own"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			go byHand(a, tc.content)
			sec, err := Server(testContext(t), b, Config{Key: testKey(2), Muxers: []string{"/yamux/1.0.0"}})
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if name == "unknown fields" && sec.Muxer != "/yamux/1.0.0" {
					t.Errorf("muxer %q", sec.Muxer)
				}
				sec.Close()
				return
			}
			if !errors.Is(err, transport.ErrHandshake) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want ErrHandshake with %q", err, tc.want)
			}
		})
	}
}

func TestPayloadBytes(t *testing.T) {
	got := payload{key: []byte{1, 2}, sig: []byte{3}, muxers: []string{"/yamux/1.0.0", "/w"}}.marshal()
	want := "0a020102" + "120103" + "2212" + "120c" + hex.EncodeToString([]byte("/yamux/1.0.0")) + "12022f77"
	if hex.EncodeToString(got) != want {
		t.Errorf("%x, want %s", got, want)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(payload{key: []byte{1, 2}, sig: []byte{3}, muxers: []string{"/yamux/1.0.0"}}.marshal())
	f.Add([]byte{0x22, 4, 0x12, 2, 'a', 'b'})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePayload(b)
		if err != nil {
			return
		}
		again, err := parsePayload(p.marshal())
		if err != nil || !bytes.Equal(again.key, p.key) || !bytes.Equal(again.sig, p.sig) || !slices.Equal(again.muxers, p.muxers) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

// Whatever the peer sends, the handshake ends with an error and does not panic: nobody can make a
// message that decrypts without taking part.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n"), true)
	f.Add(append([]byte{0, 32}, make([]byte, 32)...), false)
	f.Add(append([]byte{0, 216}, make([]byte, 216)...), true)
	f.Add([]byte("\x13/multistream/1.0.0\n"), false)
	f.Fuzz(func(t *testing.T, sent []byte, initiator bool) {
		conn := sinkConn{wireConn{Reader: bytes.NewReader(sent)}}
		side := Server
		if initiator {
			side = Client
		}
		if _, err := side(context.Background(), conn, Config{Key: testKey(1)}); err == nil {
			t.Fatal("the handshake succeeded")
		}
	})
}

// sinkConn takes everything that is written.
type sinkConn struct{ wireConn }

func (sinkConn) Write(b []byte) (int, error)   { return len(b), nil }
func (sinkConn) SetDeadline(_ time.Time) error { return nil }
