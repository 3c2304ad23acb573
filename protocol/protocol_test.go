package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"muxperf/transport"
	"muxperf/transport/yamux"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count is the simplest Counter.
type count uint64

func (c *count) Add(n int) { *c += count(n) }

type stream struct{ transport.MuxStream }

func (stream) Protocol() string { return "" }

// streams returns both ends of a yamux stream over a loopback socket.
func streams(t *testing.T) (client, server transport.Stream) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := yamux.Config{}.WithDefaults(yamux.PlaintextFrame)
	cm, err := yamux.Client(a, c)
	if err != nil {
		t.Fatal(err)
	}
	sm, err := yamux.Server(b, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cm.Close(); sm.Close() })
	cs, err := cm.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ss, err := sm.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream{cs}, stream{ss}
}

func upload(n uint64, c Counter) PerfUpload {
	const block = 1 << 14
	return PerfUpload{Payload: NewPayload(NewPattern([16]byte{1}, block, false), block), Block: block, Allow: For(n), Count: c}
}

func TestPerfProtocolsCountAlikeAtBothEnds(t *testing.T) {
	for _, tc := range []struct {
		name         string
		up, down     uint64
		client       func(st transport.Stream, up, down uint64, sent, got *count) error
		server       func(st transport.Stream, p PerfServer) error
		hasDownloads bool
	}{
		{"0.1.0", 3_000_001, 0,
			func(st transport.Stream, up, _ uint64, sent, _ *count) error {
				_, err := Perf010Client(st, upload(up, sent))
				return err
			},
			func(st transport.Stream, p PerfServer) error {
				_, err := Perf010Server(st, p.Buf, p.Received)
				return err
			}, false},
		{"1.0.0", 3_000_001, 2_000_003,
			func(st transport.Stream, up, down uint64, sent, got *count) error {
				_, _, err := Perf100Client(st, upload(up, sent), down, make([]byte, 1<<16), got)
				return err
			},
			func(st transport.Stream, p PerfServer) error { return p.Serve100(st) }, true},
		{"1.0.0, nothing up", 0, 1,
			func(st transport.Stream, up, down uint64, sent, got *count) error {
				_, _, err := Perf100Client(st, upload(up, sent), down, make([]byte, 1<<16), got)
				return err
			},
			func(st transport.Stream, p PerfServer) error { return p.Serve100(st) }, true},
		{"1.0.0, 16-byte dialect", 3_000_001, 2_000_003,
			func(st transport.Stream, up, down uint64, sent, got *count) error {
				_, _, err := Perf100DialectClient(st, upload(up, sent), up, down, make([]byte, 1<<16), got)
				return err
			},
			func(st transport.Stream, p PerfServer) error { return p.Serve100Dialect(st) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := streams(t)
			var sent, got, received, returned count
			var wg sync.WaitGroup
			wg.Go(func() {
				payload := NewPayload(NewPattern([16]byte{2}, 1<<14, false), 1<<14)
				p := PerfServer{Buf: make([]byte, 1<<16), Received: &received, Sent: &returned, Payload: payload, Block: 1 << 14}
				if err := tc.server(server, p); err != nil {
					t.Errorf("server: %v", err)
				}
			})
			if err := tc.client(client, tc.up, tc.down, &sent, &got); err != nil {
				t.Errorf("client: %v", err)
			}
			wg.Wait()
			if uint64(sent) != tc.up || received != sent || uint64(got) != tc.down || returned != got {
				t.Errorf("up: %d sent, %d received; down: %d sent, %d received; asked for %d and %d",
					sent, received, returned, got, tc.up, tc.down)
			}
		})
	}
}

// TestShortDownloadIsAnError: the server ends before it has sent what was asked for.
func TestShortDownloadIsAnError(t *testing.T) {
	client, server := streams(t)
	go func() {
		io.ReadFull(server, make([]byte, 8))
		server.Write(make([]byte, 10))
		server.Close()
	}()
	var sent, got count
	_, _, err := Perf100Client(client, upload(0, &sent), 11, make([]byte, 100), &got)
	if !errors.Is(err, ErrShort) || got != 10 {
		t.Errorf("10 of 11 bytes: %v after %d", err, got)
	}
}

func TestPayloadIsCheckedByteByByte(t *testing.T) {
	const block = 1000
	pattern := NewPattern([16]byte{3}, block, true)
	var all []byte
	send := NewPayload(pattern, block)
	for len(all) < 3*verifyPeriod {
		n := 1 + (len(all)*7)%block
		all = append(all, send.Next(n)...)
	}
	if err := NewPayload(pattern, block).Check(all); err != nil {
		t.Fatalf("an unchanged payload: %v", err)
	}
	for _, tc := range []struct {
		name   string
		change func([]byte) []byte
	}{
		{"a flipped bit", func(b []byte) []byte { b[verifyPeriod+5] ^= 1; return b }},
		{"a lost byte", func(b []byte) []byte { return append(b[:77], b[78:]...) }},
		{"a doubled block", func(b []byte) []byte { return append(b[:block:block], b...) }},
		{"two blocks swapped", func(b []byte) []byte {
			return append(append(append([]byte{}, b[block:2*block]...), b[:block]...), b[2*block:]...)
		}},
	} {
		if err := NewPayload(pattern, block).Check(tc.change(bytes.Clone(all))); !errors.Is(err, ErrPayload) {
			t.Errorf("%s: %v, want ErrPayload", tc.name, err)
		}
	}
}

func TestRoundTripsAndBadSizes(t *testing.T) {
	client, server := streams(t)
	var served count
	done := make(chan error, 1)
	go func() { done <- RRServer(server, &served) }()
	if _, err := client.Write(RRHeader{Request: 3, Response: 5}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	for _, msg := range []string{"abc", "xyz"} {
		client.Write([]byte(msg))
		answer := make([]byte, 5)
		if _, err := io.ReadFull(client, answer); err != nil || string(answer[:3]) != msg {
			t.Fatalf("asked %q, got %q, %v", msg, answer, err)
		}
	}
	client.CloseWrite()
	if err := <-done; err != nil || served != 6 {
		t.Errorf("the server ended with %v after %d bytes", err, served)
	}
	for _, sizes := range [][2]uint32{{0, 1}, {1, 0}, {MaxMessage + 1, 1}, {1, 1 << 31}} {
		b := binary.BigEndian.AppendUint32(nil, sizes[0])
		if _, err := ReadRRHeader(bytes.NewReader(binary.BigEndian.AppendUint32(b, sizes[1]))); err == nil {
			t.Errorf("sizes %v were accepted", sizes)
		}
	}
}

// FuzzPerfServer feeds the servers headers and payloads of a hostile peer over a stream that ends.
func FuzzPerfServer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3}, false)
	f.Add(append(bytes.Repeat([]byte{0xff}, 8), 1), true)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 9}, true)
	payload := NewPattern([16]byte{}, 1<<10, false)
	f.Fuzz(func(t *testing.T, in []byte, dialect bool) {
		var received, sent count
		st := &fake{r: bytes.NewReader(in), room: 1 << 20}
		p := PerfServer{Buf: make([]byte, 512), Received: &received, Sent: &sent, Payload: NewPayload(payload, 1<<10), Block: 1 << 10}
		if dialect {
			_ = p.Serve100Dialect(st)
		} else {
			_ = p.Serve100(st)
		}
		if int(received) > len(in) || int(sent) > 1<<20 {
			t.Errorf("counted %d received of %d, %d sent", received, len(in), sent)
		}
	})
}

// fake is a stream that reads from r and takes room bytes before it fails.
type fake struct {
	transport.Stream
	r    io.Reader
	room int
}

func (f *fake) Read(b []byte) (int, error) { return f.r.Read(b) }
func (f *fake) Close() error               { return nil }
func (f *fake) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}
