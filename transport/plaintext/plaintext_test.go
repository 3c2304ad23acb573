// Tests of the plaintext exchange: its bytes, both sides against each other, and wrong peers.

package plaintext

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muxperf/transport"
	"muxperf/transport/identity"
	"muxperf/transport/internal/pb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testKey(b byte) identity.PrivateKey { return identity.FromSeed([32]byte{b}) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// The form that real peers were seen to send: 4e 0a26 0024 08011220… 1224 08011220…, which fits
// the 100 bytes of rust-libp2p.
func TestExchangeBytes(t *testing.T) {
	key := testKey(1)
	pub := hex.EncodeToString(key.PublicBytes())
	if got, want := hex.EncodeToString(marshal(key.ID(), key.PublicBytes())), "4e0a260024"+pub+"1224"+pub; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestBothSides(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ctx, ck, sk := testContext(t), testKey(1), testKey(2)
	server := make(chan *transport.Secured, 1)
	go func() {
		sec, err := Server(ctx, b, Config{Key: sk})
		if err != nil {
			t.Error(err)
		}
		server <- sec
	}()
	c, err := Client(ctx, a, Config{Key: ck, Remote: sk.ID()})
	if err != nil {
		t.Fatal(err)
	}
	s := <-server
	if c.LocalPeer != ck.ID().String() || c.RemotePeer != sk.ID().String() || s.RemotePeer != ck.ID().String() || c.Muxer != "" {
		t.Errorf("client %+v, server %+v", c, s)
	}
	go io.WriteString(c, "raw")
	buf := make([]byte, 3)
	if _, err := io.ReadFull(s, buf); err != nil || string(buf) != "raw" {
		t.Errorf("read %q, %v", buf, err)
	}
}

// What follows the exchange in the same segment belongs to the next layer.
func TestReadsExactly(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go io.ReadFull(b, make([]byte, 79))
	key := testKey(2)
	go b.Write(append(marshal(key.ID(), key.PublicBytes()), "next layer"...))
	c, err := Client(testContext(t), a, Config{Key: testKey(1)})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "next layer" {
		t.Errorf("read %q, %v", buf, err)
	}
}

func TestRefuses(t *testing.T) {
	key, other := testKey(2), testKey(3)
	good := marshal(key.ID(), key.PublicBytes())
	for name, tc := range map[string]struct {
		answer []byte
		remote identity.ID
		err    error
		text   string
	}{
		"other peer":   {good, other.ID(), transport.ErrPeerID, key.ID().String()},
		"id and key":   {marshal(other.ID(), key.PublicBytes()), "", transport.ErrPeerID, "does not belong"},
		"no key":       {append([]byte{40}, pb.AppendBytes(nil, 1, string(key.ID()))...), "", transport.ErrHandshake, "lacks"},
		"no id":        {append([]byte{38}, pb.AppendBytes(nil, 2, key.PublicBytes())...), "", transport.ErrHandshake, "lacks"},
		"not a key":    {marshal(key.ID(), []byte{8}), "", transport.ErrHandshake, "cut short"},
		"not protobuf": {[]byte{1, 0xff}, "", transport.ErrHandshake, "cut short"},
		"empty":        {[]byte{0}, "", transport.ErrHandshake, "lacks"},
		"too long":     {[]byte{0x80, 0x40}, "", transport.ErrHandshake, "more than 8191"},
		"far too long": {[]byte{0xff, 0xff, 0xff}, "", transport.ErrHandshake, "more than 8191"},
		"cut":          {good[:50], "", io.ErrUnexpectedEOF, "identity"},
		"closed":       {nil, "", io.EOF, "identity"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			go io.Copy(io.Discard, b)
			go func() { b.Write(tc.answer); b.Close() }()
			_, err := Client(testContext(t), a, Config{Key: testKey(1), Remote: tc.remote})
			if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("error %v, want %v with %q", err, tc.err, tc.text)
			}
		})
	}
}

func TestEndsWithContext(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	why := errors.New("nobody there")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Server(ctx, a, Config{Key: testKey(1)}); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	if _, err := Client(context.Background(), a, Config{}); err == nil {
		t.Error("an exchange without a key succeeded")
	}
}

func FuzzExchange(f *testing.F) {
	key := testKey(1)
	f.Add(marshal(key.ID(), key.PublicBytes()))
	f.Add([]byte{0x80, 0x40})
	f.Add([]byte{4, 0x0a, 0, 0x12, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		msg, err := read(bytes.NewReader(b))
		if err != nil {
			return
		}
		id, err := parse(msg)
		if err != nil {
			return
		}
		if _, err := identity.ParseID(id.String()); err != nil {
			t.Fatalf("accepted %x as an id: %v", string(id), err)
		}
	})
}
