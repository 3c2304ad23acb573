// Tests of multistream-select: the bytes on the wire, both sides against each other, the lazy
// dialer, and peers that speak something else.

package multistream

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muxperf/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Messages as they are on the wire of real peers.
const (
	mss    = "\x13/multistream/1.0.0\n"
	noise  = "\x07/noise\n"
	plain  = "\x11/plaintext/2.0.0\n"
	yamux  = "\x0d/yamux/1.0.0\n"
	perf   = "\x0c/perf/1.0.0\n"
	ipfsID = "\x0f/ipfs/id/1.0.0\n"
	na     = "\x03na\n"
)

func TestMessageBytes(t *testing.T) {
	for token, want := range map[string]string{
		header:             "132f6d756c746973747265616d2f312e302e300a",
		"/noise":           "072f6e6f6973650a",
		"/plaintext/2.0.0": "112f706c61696e746578742f322e302e300a",
		"/yamux/1.0.0":     "0d2f79616d75782f312e302e300a",
		"/perf/0.1.0":      "0c2f706572662f302e312e300a",
		"/ipfs/id/1.0.0":   "0f2f697066732f69642f312e302e300a",
		refuse:             "036e610a",
	} {
		if got := hex.EncodeToString(appendToken(nil, token)); got != want {
			t.Errorf("%s is %s, want %s", token, got, want)
		}
	}
}

// A script is a peer that has sent everything already. It keeps each write.
type script struct {
	io.Reader
	writes []string
}

func scripted(s string) *script { return &script{Reader: strings.NewReader(s)} }

func (s *script) Write(b []byte) (int, error) {
	s.writes = append(s.writes, string(b))
	return len(b), nil
}

// left is what was not read.
func (s *script) left() string {
	b, _ := io.ReadAll(s.Reader)
	return string(b)
}

func TestSelect(t *testing.T) {
	long := "/" + strings.Repeat("x", 200)
	longMessage := string(appendToken(nil, long))
	for _, tc := range []struct {
		name      string
		protocols []string
		peer      string
		want      string
		writes    []string
		err       error
		text      string
	}{
		{"first", []string{"/noise"}, mss + noise + "NEXT", "/noise", []string{mss + noise}, nil, ""},
		{"second", []string{"/noise", "/plaintext/2.0.0"}, mss + na + plain + "NEXT", "/plaintext/2.0.0", []string{mss + noise, plain}, nil, ""},
		{"two-byte length", []string{long}, mss + longMessage + "NEXT", long, []string{mss + longMessage}, nil, ""},
		{"all refused", []string{"/noise", "/yamux/1.0.0"}, mss + na + na, "", []string{mss + noise, yamux}, transport.ErrProtocol, "/noise, /yamux"},
		{"other answer", []string{"/noise"}, mss + yamux, "", nil, transport.ErrHandshake, "/yamux/1.0.0"},
		{"http", []string{"/noise"}, "HTTP/1.1 400", "", nil, transport.ErrHandshake, "HTTP"},
		{"ssh", []string{"/noise"}, "SSH-2.0", "", nil, transport.ErrHandshake, "SSH"},
		{"tls", []string{"/noise"}, "\x15\x03\x01", "", nil, transport.ErrHandshake, "TLS"},
		{"other version", []string{"/noise"}, "\x13/multistream/2.0.0\n", "", nil, transport.ErrHandshake, "not the header"},
		{"nothing", []string{"/noise"}, "", "", nil, io.EOF, "header"},
		{"cut header", []string{"/noise"}, mss[:7], "", nil, io.ErrUnexpectedEOF, ""},
		{"cut answer", []string{"/noise"}, mss + noise[:3], "", nil, io.ErrUnexpectedEOF, ""},
		{"cut before answer", []string{"/noise"}, mss, "", nil, io.EOF, ""},
		{"empty answer", []string{"/noise"}, mss + "\x00", "", nil, transport.ErrHandshake, "empty"},
		{"no newline", []string{"/noise"}, mss + "\x03na!", "", nil, transport.ErrHandshake, "newline"},
		{"too long answer", []string{"/noise"}, mss + "\x80\x80\x01", "", nil, transport.ErrHandshake, "longer than 16383"},
		{"nothing proposed", nil, "", "", nil, nil, "no protocol"},
		{"too long name", []string{strings.Repeat("x", 1024)}, "", "", nil, nil, "too long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			peer := scripted(tc.peer)
			got, err := Select(peer, tc.protocols...)
			if tc.want != "" {
				if err != nil || got != tc.want || !slices.Equal(peer.writes, tc.writes) {
					t.Errorf("%q, %v, writes %q", got, err, peer.writes)
				}
				if rest := peer.left(); rest != "NEXT" {
					t.Errorf("%q is left for the next layer", rest)
				}
				return
			}
			if err == nil || (tc.err != nil && !errors.Is(err, tc.err)) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("error %v, want %v with %q", err, tc.err, tc.text)
			}
			if tc.writes != nil && !slices.Equal(peer.writes, tc.writes) {
				t.Errorf("writes %q", peer.writes)
			}
		})
	}
}

func TestNegotiate(t *testing.T) {
	for _, tc := range []struct {
		name, peer, want, sent string
		err                    error
	}{
		{"first", mss + noise + "NEXT", "/noise", mss + noise, nil},
		{"third", mss + ipfsID + "\x03ls\n" + noise + "NEXT", "/noise", mss + na + na + noise, nil},
		{"gave up", mss + perf, "", mss + na, transport.ErrProtocol},
		{"proposes for ever", mss + strings.Repeat(perf, maxProposals+1), "", mss + strings.Repeat(na, maxProposals), transport.ErrProtocol},
		{"not multistream", "GET / HTTP/1.1\r\n", "", "", transport.ErrHandshake},
		{"header only", mss, "", mss, io.EOF},
		{"cut", mss + noise[:4], "", mss, io.ErrUnexpectedEOF},
		{"longest message", mss + "\xff\x7f" + strings.Repeat("x", maxRead-1) + "\n" + noise + "NEXT", "/noise", mss + na + noise, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := net.Pipe()
			sent := make(chan string, 1)
			go func() { // takes the answers while it proposes
				all, _ := io.ReadAll(a)
				sent <- string(all)
			}()
			peer := struct {
				io.Reader
				io.Writer
			}{strings.NewReader(tc.peer), b}
			got, err := Negotiate(peer, func(p string) bool { return p == "/noise" })
			time.Sleep(time.Millisecond) // a header whose negotiation has failed goes out beside it
			b.Close()
			if got != tc.want || (err == nil) != (tc.want != "") || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
			if s := <-sent; s != tc.sent && !(tc.err == io.EOF || tc.err == io.ErrUnexpectedEOF) {
				t.Errorf("sent %q, want %q", s, tc.sent)
			}
			if tc.want != "" {
				if rest, _ := io.ReadAll(peer.Reader); string(rest) != "NEXT" {
					t.Errorf("%q is left for the next layer", rest)
				}
			}
		})
	}
}

// A dialer may wait for the header before it proposes, as py-libp2p does.
func TestNegotiateHeaderFirst(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() {
		_, err := Negotiate(b, func(string) bool { return true })
		done <- err
	}()
	io.WriteString(a, mss)
	if err := readHeader(a); err != nil {
		t.Fatal(err)
	}
	io.WriteString(a, noise)
	if agreed, err := readAnswer(a, "/noise"); err != nil || !agreed {
		t.Fatal(agreed, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Over net.Pipe, which has no buffer: neither side may wait for the other to read.
func TestBothSides(t *testing.T) {
	for _, tc := range []struct {
		propose []string
		want    string
	}{
		{[]string{"/a"}, "/a"},
		{[]string{"/x", "/y", "/b"}, "/b"},
		{[]string{"/x"}, ""},
	} {
		a, b := net.Pipe()
		done := make(chan string, 1)
		go func() {
			p, err := Negotiate(b, func(p string) bool { return p == "/a" || p == "/b" })
			done <- fmt.Sprint(p, errors.Is(err, transport.ErrProtocol))
		}()
		got, err := Select(a, tc.propose...)
		a.Close()
		if got != tc.want || errors.Is(err, transport.ErrProtocol) != (tc.want == "") {
			t.Errorf("%v: %q, %v", tc.propose, got, err)
		}
		if other := <-done; other != fmt.Sprint(tc.want, tc.want == "") {
			t.Errorf("%v: the listener has %s", tc.propose, other)
		}
		b.Close()
	}
}

func TestFailingWrites(t *testing.T) {
	a, b := net.Pipe()
	a.Close()
	if _, err := Select(a, "/x"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Select: %v", err)
	}
	lazy := SelectLazyConn(a, "/x")
	for range 2 {
		if n, err := lazy.Write([]byte("data")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("lazy Write: %d, %v", n, err)
		}
		if _, err := lazy.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("lazy Read: %v", err)
		}
	}
	b.Close()
}

// A fakeStream is a stream of a muxer over a script, which notes what is done to it in order.
type fakeStream struct {
	mu sync.Mutex
	*script
	log []string
}

func (s *fakeStream) note(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, what)
	return nil
}

func (s *fakeStream) Write(b []byte) (int, error) {
	s.note("write " + string(b))
	return len(b), nil
}

func (s *fakeStream) Read(b []byte) (int, error) {
	s.note("read")
	return s.script.Read(b)
}
func (s *fakeStream) Close() error                       { return s.note("close") }
func (s *fakeStream) CloseWrite() error                  { return s.note("closewrite") }
func (s *fakeStream) Reset() error                       { return s.note("reset") }
func (s *fakeStream) SetDeadline(time.Time) error        { return s.note("deadline") }
func (s *fakeStream) SetReadDeadline(time.Time) error    { return s.note("readdeadline") }
func (s *fakeStream) SetWriteDeadline(t time.Time) error { return s.note("writedeadline") }

// summary is the log without repetitions.
func (s *fakeStream) summary() string {
	return strings.Join(slices.Compact(slices.Clone(s.log)), "|")
}

func TestLazy(t *testing.T) {
	buf := make([]byte, 10)
	proposal := "write " + mss + perf
	for _, tc := range []struct {
		name, peer string
		do         func(transport.MuxStream) error
		log        string
		err        error
	}{
		{"data with the proposal", mss + perf + "hi", func(s transport.MuxStream) error {
			if n, err := s.Write([]byte("DATA")); n != 4 || err != nil {
				return fmt.Errorf("Write = %d, %w", n, err)
			}
			if n, err := s.Write([]byte("MORE")); n != 4 || err != nil {
				return fmt.Errorf("Write = %d, %w", n, err)
			}
			n, err := s.Read(buf)
			if string(buf[:n]) != "hi" {
				return fmt.Errorf("read %q, %w", buf[:n], err)
			}
			return s.CloseWrite()
		}, proposal + "DATA|write MORE|read|closewrite", nil},
		{"read first", mss + perf + "hi", func(s transport.MuxStream) error {
			_, err := s.Read(buf)
			return err
		}, proposal + "|read", nil},
		{"half-close waits for the answer", mss + perf, func(s transport.MuxStream) error {
			s.Write([]byte("DATA"))
			return s.CloseWrite()
		}, proposal + "DATA|read|closewrite", nil},
		{"close waits for the answer", mss + perf, func(s transport.MuxStream) error {
			s.Write([]byte("DATA"))
			return s.Close()
		}, proposal + "DATA|readdeadline|read|close", nil},
		{"close after the answer", mss + perf + "hi", func(s transport.MuxStream) error {
			s.Read(buf)
			return s.Close()
		}, proposal + "|read|close", nil},
		{"refused", mss + na, func(s transport.MuxStream) error {
			s.Write([]byte("DATA"))
			_, err := s.Read(buf)
			if _, again := s.Read(buf); again != err {
				return fmt.Errorf("the second Read returned %w", again)
			}
			if again := s.CloseWrite(); again != err {
				return fmt.Errorf("CloseWrite returned %w", again)
			}
			return err
		}, proposal + "DATA|read", transport.ErrProtocol},
		{"close without an answer", "", func(s transport.MuxStream) error {
			return s.Close()
		}, "readdeadline|" + proposal + "|read|reset", io.EOF},
		{"other answer", mss + noise, func(s transport.MuxStream) error {
			_, err := s.Read(buf)
			return err
		}, proposal + "|read", transport.ErrHandshake},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := &fakeStream{script: scripted(tc.peer)}
			err := tc.do(SelectLazy(fake, "/perf/1.0.0"))
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if got := fake.summary(); got != tc.log {
				t.Errorf("log %q, want %q", got, tc.log)
			}
		})
	}
}

// A lazy dialer on a real connection, with both directions busy at once.
func TestLazyConn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := Negotiate(c, func(string) bool { return true }); err != nil {
			t.Error(err)
			return
		}
		io.Copy(c, c)
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lazy := SelectLazyConn(c, "/echo")
	want := bytes.Repeat([]byte("0123456789"), 50_000)
	go func() {
		for rest := want; len(rest) > 0; {
			n, err := lazy.Write(rest[:min(len(rest), 1000)])
			if err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		if err := lazy.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	if got, err := io.ReadAll(lazy); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if transport.Underlying(lazy) != c {
		t.Error("the socket is not found below")
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add([]byte(mss + noise + "rest"))
	f.Add([]byte(mss + na + "\xff\x7fx"))
	f.Add([]byte("GET / HTTP/1.1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		rw := struct {
			io.Reader
			io.Writer
		}{in, io.Discard}
		p, err := Negotiate(rw, func(p string) bool { return strings.HasPrefix(p, "/") })
		if err == nil && !bytes.HasSuffix(b[:len(b)-in.Len()], []byte(p+"\n")) {
			t.Fatalf("agreed on %q, with %d bytes left of %q", p, in.Len(), b)
		}
	})
}

func FuzzSelect(f *testing.F) {
	f.Add([]byte(mss + noise + "rest"))
	f.Add([]byte(mss + na + yamux))
	f.Add([]byte("HTTP/1.1 400"))
	f.Fuzz(func(t *testing.T, b []byte) {
		peer := scripted(string(b))
		p, err := Select(peer, "/noise", "/yamux/1.0.0")
		if err == nil && !bytes.Contains(b, []byte(p+"\n")) {
			t.Fatalf("agreed on %q by %q", p, b)
		}
	})
}
