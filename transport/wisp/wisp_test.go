package wisp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muxperf/measure"
	"muxperf/transport"
	"muxperf/transport/wisp/proxy"
	"muxperf/transport/wisp/ws"

	gobwas "github.com/gobwas/ws"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func connPair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// pair returns both ends of a Wisp connection.
func pair(t testing.TB, cc ClientConfig, sc ServerConfig) (client, server *Conn) {
	t.Helper()
	a, b := connPair(t)
	done := make(chan error, 1)
	go func() {
		m, err := Server(context.Background(), b, sc)
		if err == nil {
			server = m.(*Conn)
		}
		done <- err
	}()
	m, err := Client(context.Background(), a, cc)
	if serr := <-done; err != nil || serr != nil {
		t.Fatalf("client %v, server %v", err, serr)
	}
	client = m.(*Conn)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// open opens a stream to a built-in port and returns both ends.
func open(t testing.TB, client, server *Conn, port int) (*Stream, *Stream) {
	t.Helper()
	a, err := client.Dial(context.Background(), "tcp", InternalHost, port)
	if err != nil {
		t.Fatal(err)
	}
	b, err := server.AcceptStream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return a.(*Stream), b.(*Stream)
}

func TestBothVersionsCarryBytesWhole(t *testing.T) {
	for _, tc := range []struct {
		name    string
		client  ClientConfig
		server  ServerConfig
		version int
	}{
		{"1 and 1", ClientConfig{Version: 1}, ServerConfig{Version: 1}, 1},
		{"1 and 2", ClientConfig{Version: 1}, ServerConfig{}, 1},
		{"2 and 1", ClientConfig{}, ServerConfig{Version: 1}, 1},
		{"2 and 2", ClientConfig{}, ServerConfig{MOTD: "hello"}, 2},
		{"a credit of one", ClientConfig{Version: 1}, ServerConfig{Credit: 1}, 1},
		{"small packets", ClientConfig{Payload: 7}, ServerConfig{Payload: 9}, 2},
		{"no mask", ClientConfig{Mask: ws.MaskZero}, ServerConfig{}, 2},
		{"a fixed mask", ClientConfig{Mask: ws.MaskFixed}, ServerConfig{}, 2},
		{"a password", ClientConfig{User: "u", Password: "p"}, ServerConfig{Passwords: map[string]string{"u": "p"}}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pair(t, tc.client, tc.server)
			if client.version != tc.version {
				t.Errorf("the client speaks version %d", client.version)
			}
			a, b := open(t, client, server, PortMuxperf)
			if network, host, port := b.Destination(); network != "tcp" || host != InternalHost || port != PortMuxperf {
				t.Errorf("the destination is %s %s:%d", network, host, port)
			}
			want := bytes.Repeat([]byte("0123456789abcdef!"), 20_000)
			for _, dir := range [][2]*Stream{{a, b}, {b, a}} {
				go dir[0].Write(want)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(dir[1], got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the bytes differ, or broke off: %v", err)
				}
			}
			a.Write([]byte("last words"))
			a.Close()
			if got, err := io.ReadAll(b); err != nil || string(got) != "last words" {
				t.Errorf("before the close %q arrived, %v", got, err)
			}
			if err := b.CloseWrite(); !errors.Is(err, transport.ErrNoHalfClose) {
				t.Errorf("CloseWrite: %v", err)
			}
		})
	}
}

func TestResetAndDeadlines(t *testing.T) {
	client, server := pair(t, ClientConfig{}, ServerConfig{Credit: 2})
	a, b := open(t, client, server, PortEcho)
	a.SetReadDeadline(time.Now())
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read past its deadline: %v", err)
	}
	a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := a.Write(make([]byte, 1<<20)) // more than the credit, and nobody reads
	if !errors.Is(err, os.ErrDeadlineExceeded) || n != 2*a.c.payload {
		t.Errorf("a write beyond the credit: %d bytes, %v", n, err)
	}
	b.Reset()
	a.SetDeadline(time.Now().Add(patience))
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, transport.ErrReset) {
		t.Errorf("a reset stream reads %v", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, transport.ErrReset) {
		t.Errorf("a reset stream writes %v", err)
	}
}

// TestFairness: 100 streams flood at once; none starves.
func TestFairness(t *testing.T) {
	client, server := pair(t, ClientConfig{}, ServerConfig{})
	const n = 100
	var counts [n]atomic.Int64
	var wg sync.WaitGroup
	start, stop := make(chan struct{}), make(chan struct{})
	for i := range n {
		a, b := open(t, client, server, PortMuxperf)
		wg.Go(func() {
			block := make([]byte, 16<<10)
			<-start
			for {
				select {
				case <-stop:
					a.Close()
					return
				default:
				}
				if _, err := a.Write(block); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				m, err := b.Read(buf)
				counts[i].Add(int64(m))
				if err != nil {
					return
				}
			}
		})
	}
	close(start)
	for counts[0].Load() < 4<<20 {
		time.Sleep(10 * time.Millisecond)
	}
	shares := make([]float64, n)
	for i := range counts {
		shares[i] = float64(counts[i].Load())
	}
	close(stop)
	wg.Wait()
	if j := measure.Jain(shares); j < 0.9 {
		t.Errorf("Jain's index is %.3f: %v", j, shares)
	}
	if v := server.Violations(); v != 0 {
		t.Errorf("%d packets of an honest client were taken for violations", v)
	}
}

// TestSlowReader: one stream is not read; another goes on, and no more is queued than the credit allows.
func TestSlowReader(t *testing.T) {
	client, server := pair(t, ClientConfig{}, ServerConfig{})
	slow, slowEnd := open(t, client, server, PortMuxperf)
	fast, fastEnd := open(t, client, server, PortMuxperf)
	slow.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	sent, err := slow.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || sent > 2*defaultCredit*client.payload {
		t.Errorf("%d bytes went to a stream that nobody reads, %v", sent, err)
	}
	go fast.Write(make([]byte, 32<<20))
	fastEnd.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(fastEnd, make([]byte, 32<<20)); err != nil {
		t.Errorf("beside a stalled stream: %v", err)
	}
	server.mu.Lock()
	queued := server.queued
	server.mu.Unlock()
	if queued > sent {
		t.Errorf("%d bytes are queued, %d were sent", queued, sent)
	}
	slowEnd.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(slowEnd, make([]byte, sent)); err != nil {
		t.Errorf("what was queued is lost: %v", err)
	}
}

// A rawClient speaks frames and packets as a test wants them.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	done chan struct{}
}

// newRawClient upgrades as version 1 against a server of ours that discards on its built-in streams.
func newRawClient(t *testing.T, sc ServerConfig) *rawClient {
	t.Helper()
	a, b := connPair(t)
	c := &rawClient{t: t, conn: a, r: bufio.NewReader(a), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		m, err := Server(context.Background(), b, sc)
		if err != nil {
			return
		}
		defer m.Close()
		for {
			st, err := m.AcceptStream(context.Background())
			if err != nil {
				return
			}
			if st.(*Stream).dest.port == PortDiscard {
				go io.Copy(io.Discard, st)
			}
		}
	}()
	t.Cleanup(func() { a.Close(); <-c.done })
	a.SetDeadline(time.Now().Add(patience))
	if _, err := ws.Dial(a, c.r, "host", "/", ""); err != nil {
		t.Fatal(err)
	}
	if kind, id, _ := c.packet(); kind != typeContinue || id != 0 {
		t.Fatalf("the server began with packet type %d of stream %d", kind, id)
	}
	return c
}

// frame sends a frame with any header.
func (c *rawClient) frame(h gobwas.Header, payload []byte) {
	h.Length = int64(len(payload))
	if h.Masked {
		h.Mask = gobwas.NewMask()
		payload = bytes.Clone(payload)
		gobwas.Cipher(payload, h.Mask, 0)
	}
	if err := gobwas.WriteHeader(c.conn, h); err == nil {
		c.conn.Write(payload)
	}
}

// send sends a packet in a good frame.
func (c *rawClient) send(p []byte) {
	c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpBinary, Masked: true}, p)
}

func packet(kind byte, id uint32, body ...byte) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{kind}, id), body...)
}

func connectTo(id uint32, kind byte, port uint16, host string) []byte {
	return packet(typeConnect, id, connect{kind: kind, port: int(port), host: host}.append(nil)...)
}

// packet reads the server's next packet; a close frame gives type 0 and the code as id.
func (c *rawClient) packet() (kind byte, id uint32, body []byte) {
	h, err := gobwas.ReadHeader(c.r)
	if err != nil {
		return 0, 0, nil
	}
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return 0, 0, nil
	}
	if h.OpCode == gobwas.OpClose {
		return 0, uint32(binary.BigEndian.Uint16(b)), nil
	}
	if h.OpCode == gobwas.OpPong {
		return 0xff, 0, b
	}
	kind, id, body, _ = parseHeader(b)
	return kind, id, body
}

func TestBadFramesHaveTheirCloseCodes(t *testing.T) {
	good := gobwas.Header{Fin: true, OpCode: gobwas.OpBinary, Masked: true}
	for _, tc := range []struct {
		name string
		send func(c *rawClient)
		code uint32
	}{
		{"an unmasked frame", func(c *rawClient) {
			c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpBinary}, packet(typeData, 1, 'x'))
		}, ws.CloseProtocol},
		{"a text frame", func(c *rawClient) {
			c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpText, Masked: true}, []byte("hello"))
		}, ws.CloseUnsupported},
		{"reserved bits", func(c *rawClient) { h := good; h.Rsv = gobwas.Rsv(true, false, false); c.frame(h, packet(typeData, 1)) }, ws.CloseProtocol},
		{"opcode 3", func(c *rawClient) { h := good; h.OpCode = 3; c.frame(h, packet(typeData, 1)) }, ws.CloseProtocol},
		{"a continuation of nothing", func(c *rawClient) { h := good; h.OpCode = gobwas.OpContinuation; c.frame(h, packet(typeData, 1)) }, ws.CloseProtocol},
		{"a message inside another", func(c *rawClient) {
			h := good
			h.Fin = false
			c.frame(h, packet(typeData, 1))
			c.send(packet(typeData, 1))
		}, ws.CloseProtocol},
		{"a ping in fragments", func(c *rawClient) { c.frame(gobwas.Header{OpCode: gobwas.OpPing, Masked: true}, nil) }, ws.CloseProtocol},
		{"a long ping", func(c *rawClient) {
			c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpPing, Masked: true}, make([]byte, 126))
		}, ws.CloseProtocol},
		{"a huge frame", func(c *rawClient) {
			gobwas.WriteHeader(c.conn, gobwas.Header{Fin: true, OpCode: gobwas.OpBinary, Masked: true, Length: 1 << 40})
		}, ws.CloseTooBig},
		{"a huge message in fragments", func(c *rawClient) {
			h := good
			h.Fin = false
			for i := range 40 {
				c.frame(h, make([]byte, 64<<10))
				if h.OpCode = gobwas.OpContinuation; i > 20 {
					h.Fin = true
				}
			}
		}, ws.CloseTooBig},
		{"a truncated packet", func(c *rawClient) { c.send([]byte{typeData, 1, 0}) }, ws.CloseProtocol},
		{"a close", func(c *rawClient) {
			c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpClose, Masked: true}, []byte{3, 232})
		}, ws.CloseNormal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newRawClient(t, ServerConfig{})
			tc.send(c)
			if kind, code, _ := c.packet(); kind != 0 || code != tc.code {
				t.Errorf("the server answered with type %d, code %d; want the close code %d", kind, code, tc.code)
			}
		})
	}
}

func TestBadPacketsHaveTheirReasons(t *testing.T) {
	refusing, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deadPort := uint16(refusing.Addr().(*net.TCPAddr).Port)
	refusing.Close()
	allow := proxy.Rules{must(proxy.ParseRule("127.0.0.1:*")), must(proxy.ParseRule("*.invalid:*"))}
	for _, tc := range []struct {
		name   string
		packet []byte
		reason Reason
	}{
		{"port 0", connectTo(1, streamTCP, 0, InternalHost), ReasonInvalid},
		{"no host", connectTo(1, streamTCP, 9, ""), ReasonInvalid},
		{"a host that is not UTF-8", connectTo(1, streamTCP, 9, "\xff\xfe"), ReasonInvalid},
		{"a host with a line break", connectTo(1, streamTCP, 9, "a\r\nb"), ReasonInvalid},
		{"a long host", connectTo(1, streamTCP, 9, strings.Repeat("x", 300)), ReasonInvalid},
		{"an unknown stream type", connectTo(1, 9, 9, InternalHost), ReasonInvalid},
		{"a short CONNECT", packet(typeConnect, 1, 1), ReasonInvalid},
		{"a port that is not built in", connectTo(1, streamTCP, 80, InternalHost), ReasonBlocked},
		{"built in, but UDP", connectTo(1, streamUDP, 9, InternalHost), ReasonBlocked},
		{"a destination that is not allowed", connectTo(1, streamTCP, 80, "192.0.2.1"), ReasonBlocked},
		{"a refused connection", connectTo(1, streamTCP, deadPort, "127.0.0.1"), ReasonRefused},
		{"a name that does not exist", connectTo(1, streamTCP, 80, "no.such.host.invalid"), ReasonUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newRawClient(t, ServerConfig{Allow: allow})
			c.send(tc.packet)
			if kind, id, body := c.packet(); kind != typeClose || id != 1 || Reason(body[0]) != tc.reason {
				t.Errorf("answered with type %d for stream %d, % x; want CLOSE %#02x", kind, id, body, byte(tc.reason))
			}
			// The connection goes on.
			c.send(connectTo(7, streamTCP, PortDiscard, InternalHost))
			c.send(packet(typeData, 7, 'x'))
			c.send(packet(0x77, 7))
			c.send(packet(typeData, 99, 'x'))
			c.send(packet(typeContinue, 7, 1, 0, 0, 0))
			c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpPing, Masked: true}, []byte("still there?"))
			if kind, _, body := c.packet(); kind != 0xff || string(body) != "still there?" {
				t.Errorf("then a ping got type %d, %q", kind, body)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestClientThatIgnoresFlowControl loses that stream, and nothing else.
func TestClientThatIgnoresFlowControl(t *testing.T) {
	c := newRawClient(t, ServerConfig{Credit: 4})
	c.send(connectTo(1, streamTCP, PortEcho, InternalHost)) // nobody reads it
	c.send(connectTo(2, streamTCP, PortDiscard, InternalHost))
	for range 9 {
		c.send(packet(typeData, 1, make([]byte, 1000)...))
	}
	if kind, id, body := c.packet(); kind != typeClose || id != 1 || Reason(body[0]) != ReasonThrottled {
		t.Errorf("answered with type %d for stream %d, % x; want CLOSE 0x49 for stream 1", kind, id, body)
	}
	c.send(packet(typeData, 2, 'x'))
	c.send(packet(typeData, 2, 'x'))
	if kind, id, _ := c.packet(); kind != typeContinue || id != 2 {
		t.Errorf("the other stream got type %d for stream %d, want CONTINUE", kind, id)
	}
}

// TestFragmentsAndConnectStorm: a message in two frames, as wisp-mux sends them; then more CONNECTs than there
// may be streams.
func TestFragmentsAndConnectStorm(t *testing.T) {
	c := newRawClient(t, ServerConfig{Credit: 2, MaxStreams: 8})
	c.send(connectTo(1, streamTCP, PortDiscard, InternalHost))
	for range 2 {
		c.frame(gobwas.Header{OpCode: gobwas.OpBinary, Masked: true}, packet(typeData, 1))
		c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpPing, Masked: true}, nil)
		c.frame(gobwas.Header{Fin: true, OpCode: gobwas.OpContinuation, Masked: true}, make([]byte, 100))
	}
	pongs, granted := 0, false
	for pongs < 2 || !granted {
		switch kind, id, _ := c.packet(); {
		case kind == 0xff:
			pongs++
		case kind == typeContinue && id == 1:
			granted = true
		default:
			t.Fatalf("answered with type %d for stream %d", kind, id)
		}
	}
	go func() {
		for id := uint32(10); id < 5010; id++ {
			c.send(connectTo(id, streamTCP, PortEcho, InternalHost))
		}
	}()
	for refused := 0; refused < 5000-7; {
		kind, id, body := c.packet()
		if kind == typeContinue && id == 1 {
			continue // more of what was read before
		}
		refused++
		if kind != typeClose || Reason(body[0]) != ReasonThrottled {
			t.Fatalf("answered with type %d for stream %d, % x; want CLOSE 0x49", kind, id, body)
		}
	}
}

// TestServerThatNeverContinues: the client's writes wait, within their deadline; it can still close.
func TestServerThatNeverContinues(t *testing.T) {
	a, b := connPair(t)
	go func() {
		r := bufio.NewReader(b)
		q, err := ws.ReadRequest(b, r)
		if err != nil {
			return
		}
		ws.Accept(b, q)
		p := packet(typeContinue, 0, 3, 0, 0, 0)
		b.Write(ws.Append(nil, ws.OpBinary, false, "", p, nil))
		io.Copy(io.Discard, r)
	}()
	m, err := Client(t.Context(), a, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	st, err := m.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := st.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n != 3*defaultPayload {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

func TestHandshakesThatFail(t *testing.T) {
	for _, tc := range []struct {
		name   string
		client ClientConfig
		server ServerConfig
		want   string
	}{
		{"no password", ClientConfig{}, ServerConfig{Passwords: map[string]string{"u": "p"}}, "asks for a password"},
		{"a wrong password", ClientConfig{User: "u", Password: "x"}, ServerConfig{Passwords: map[string]string{"u": "p"}}, "wrong password"},
		{"a version that cannot give one", ClientConfig{Version: 1}, ServerConfig{Passwords: map[string]string{"u": "p"}}, "credentials missing"},
		{"a path without a slash", ClientConfig{Path: "/x", Version: 1}, ServerConfig{}, "404"},
	} {
		a, b := connPair(t)
		served := make(chan error, 1)
		go func() {
			_, err := Server(context.Background(), b, tc.server)
			b.Close()
			served <- err
		}()
		_, err := Client(t.Context(), a, tc.client)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		a.Close()
		if err := <-served; !errors.Is(err, transport.ErrHandshake) {
			t.Errorf("%s: the server says %v", tc.name, err)
		}
	}
}

// TestProxy: TCP and UDP to a listed destination, whole, with the target's end of data.
func TestProxy(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan int64, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				n, _ := io.Copy(conn, io.LimitReader(conn, 1_000_000))
				conn.(*net.TCPConn).CloseWrite()
				m, _ := io.Copy(io.Discard, conn)
				conn.Close()
				got <- n + m
			}()
		}
	}()
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			u.WriteTo(append([]byte("re: "), buf[:n]...), from)
		}
	}()
	for _, version := range []int{1, 2} {
		client, _ := pair(t, ClientConfig{Version: version}, ServerConfig{Allow: proxy.Rules{must(proxy.ParseRule("127.0.0.1:*"))}})
		st, err := client.Dial(t.Context(), "tcp", "127.0.0.1", l.Addr().(*net.TCPAddr).Port)
		if err != nil {
			t.Fatal(err)
		}
		st.SetDeadline(time.Now().Add(patience))
		want := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 200_000)
		go st.Write(want)
		if back, err := io.ReadAll(st); err != nil || !bytes.Equal(back, want) {
			t.Errorf("version %d: %d of %d bytes came back, %v", version, len(back), len(want), err)
		}
		st.Close()
		if n := <-got; n != int64(len(want)) {
			t.Errorf("version %d: the target got %d bytes", version, n)
		}
		d, err := client.Dial(t.Context(), "udp", "127.0.0.1", u.LocalAddr().(*net.UDPAddr).Port)
		if err != nil {
			t.Fatal(err)
		}
		d.SetDeadline(time.Now().Add(patience))
		for i := range 3 {
			text := fmt.Sprintf("datagram %d", i)
			d.Write([]byte(text))
			buf := make([]byte, 100)
			if n, err := d.Read(buf); err != nil || string(buf[:n]) != "re: "+text {
				t.Errorf("version %d: %q came back, %v", version, buf[:n], err)
			}
		}
		d.Close()
		// What is written before a close reaches the target.
		st, _ = client.Dial(t.Context(), "tcp", "127.0.0.1", l.Addr().(*net.TCPAddr).Port)
		st.Write(make([]byte, 300_000))
		st.Close()
		if n := <-got; n != 300_000 {
			t.Errorf("version %d: %d of 300000 bytes reached the target before the close", version, n)
		}
	}
}

// FuzzServer feeds a server, after the upgrade, what a hostile client might send. It must end, without a
// panic, and without a goroutine left.
func FuzzServer(f *testing.F) {
	masked := func(p []byte) []byte {
		return ws.Append(nil, ws.OpBinary, true, ws.MaskZero, p, nil)
	}
	f.Add(append(masked(connectTo(1, streamTCP, PortEcho, InternalHost)), masked(packet(typeData, 1, 'x'))...))
	f.Add(append(masked(connectTo(1, streamTCP, PortDiscard, InternalHost)), masked(packet(typeClose, 1, 2))...))
	f.Add(masked(connectTo(1, streamTCP, 80, "127.0.0.1")))
	f.Add([]byte{0x81, 0x80, 0, 0, 0, 0})
	f.Add([]byte{0x02, 0x83, 0, 0, 0, 0, 1, 2, 3, 0x80, 0x80, 0, 0, 0, 0})
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := net.Pipe()
		go func() {
			io.WriteString(a, "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n")
			a.Write(in)
			a.Close()
		}()
		go io.Copy(io.Discard, a)
		m, err := Server(context.Background(), b, ServerConfig{Credit: 4, MaxStreams: 8})
		if err != nil {
			b.Close()
			return
		}
		for {
			st, err := m.AcceptStream(context.Background())
			if err != nil {
				break
			}
			io.Copy(io.Discard, st)
			st.Close()
		}
		m.Close()
	})
}

func FuzzInfo(f *testing.F) {
	f.Add(info{major: 2, extensions: map[byte][]byte{1: nil, 4: []byte("motd")}}.append(nil))
	f.Add([]byte{2, 0, 1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, in []byte) {
		parsed, err := parseInfo(in)
		if err != nil {
			return
		}
		again, err := parseInfo(parsed.append(nil))
		if err != nil || len(again.extensions) != len(parsed.extensions) {
			t.Errorf("% x: %v", in, err)
		}
		for _, m := range parsed.extensions {
			parsePassword(m)
		}
	})
}

func BenchmarkFlood(b *testing.B) {
	for _, size := range []int{1, 16 << 10, 50 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			client, server := pair(b, ClientConfig{}, ServerConfig{})
			st, end := open(b, client, server, PortDiscard)
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, 256<<10)
				for left := int64(b.N) * int64(size); left > 0; {
					n, err := end.Read(buf)
					if left -= int64(n); err != nil {
						return
					}
				}
			}()
			block := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := st.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			<-done
		})
	}
}
