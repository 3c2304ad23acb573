// Package wisp is a muxer over one WebSocket: the Wisp protocol, versions 1.2 and 2.0 (draft 6), as client
// and as server. docs/wisp.md says how this project uses it, and what its bounds are.
//
// One goroutine reads the WebSocket and puts each packet's payload into the queue of its stream, in the
// buffer into which it was read; one writes what the streams have queued. Flow control is by packets, and
// from client to server only: a server grants N packets for each stream and renews them as they are
// consumed, so that its reader never has to wait for a slow stream. In the other direction Wisp has no
// window at all. There the reader waits for a stream whose queue is full, and with it, since there is one
// TCP connection, every other stream.
package wisp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muxperf/transport"
	"muxperf/transport/wisp/ws"
)

// The reserved host, and its ports: protocols of ours, and the small ones of RFC 862, 863 and 864.
const (
	InternalHost = "muxperf.internal"
	PortEcho     = 7
	PortDiscard  = 9
	PortChargen  = 19
	PortMuxperf  = 5201
)

const (
	defaultCredit     = 128
	defaultPayload    = 64<<10 - headerLen - 8 // with its headers it fits what every server takes (64 KiB)
	defaultMaxMessage = 1 << 20
	defaultMaxStreams = 1024
	infoTimeout       = 5 * time.Second
	goodbye           = 500 * time.Millisecond // for a close frame to go out, and for the peer to stop
	goodbyeBytes      = 4 << 20                // that are still taken meanwhile
	readBuffer        = 4 << 10
	acceptQueue       = 64
	clientStreamBytes = 4 << 20  // that a stream may queue before the reader waits
	serverStreamBytes = 16 << 20 // likewise; twice the credit in packets of 64 KiB
	connBytes         = 64 << 20 // that all streams of a connection may queue
)

// A Conn is one Wisp connection, either side. It is a transport.Muxer.
type Conn struct {
	conn    net.Conn
	r       *ws.Reader
	w       *writer
	client  bool
	version int
	credit  int  // initial, for each stream
	payload int  // most of one DATA
	confirm bool // stream-open confirmation is on
	limits  limits
	proxy   func(*Stream) // serves a destination that is not ours
	dialed  atomic.Uint32 // last stream id of a client

	mu       sync.Mutex
	streams  map[uint32]*Stream
	queued   int           // bytes in the queues of all streams
	room     chan struct{} // closed and replaced when they fall below their bound
	closed   bool
	endErr   error
	accepted chan *Stream
	done     chan struct{}
	wg       sync.WaitGroup

	// Violations counts packets beyond a stream's credit.
	violations atomic.Uint64
}

type limits struct {
	streams, streamBytes, connBytes, message int

	budget *transport.Budget // of the process
}

// budgetPoll is how often a connection looks whether the process's budget has room again.
const budgetPoll = 5 * time.Millisecond

// start runs the reader. first is a packet that the handshake has read too much; nil if it has not.
func (c *Conn) start() {
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		c.end(c.read())
	}()
}

// newConn makes the part that both sides share.
func newConn(conn net.Conn, r *bufio.Reader, client bool, mask ws.Mask, message int) *Conn {
	c := &Conn{conn: conn, client: client, streams: map[uint32]*Stream{}, room: make(chan struct{}), accepted: make(chan *Stream, acceptQueue), done: make(chan struct{}),
		limits: limits{streams: defaultMaxStreams, streamBytes: serverStreamBytes, connBytes: connBytes, message: message}}
	if client {
		c.limits.streamBytes = clientStreamBytes
	}
	c.w = newWriter(conn, client, mask)
	c.r = ws.NewReader(r, !client, message+headerLen, func(ping []byte) error { return c.w.raw(ws.Pong(ping, client)) })
	return c
}

// read takes packets until the connection ends.
func (c *Conn) read() error {
	for {
		buf := getBuffer()
		p, err := c.r.Next(buf, growBuffer)
		if err != nil {
			putBuffer(p)
			return err
		}
		kept, err := c.packet(p)
		if !kept {
			putBuffer(p)
		}
		if err != nil {
			return err
		}
	}
}

// packet acts on one packet; kept says that its buffer now belongs to a stream.
func (c *Conn) packet(p []byte) (kept bool, err error) {
	kind, id, body, err := parseHeader(p)
	if err != nil {
		return false, &ws.ProtocolError{Code: ws.CloseProtocol, Text: err.Error()}
	}
	switch kind {
	case typeData:
		if s := c.stream(id); s != nil {
			s.arrived(p, body)
			return true, nil
		}
	case typeConnect:
		if !c.client {
			c.connected(id, body)
		}
	case typeContinue:
		if s := c.stream(id); s != nil && c.client && len(body) >= 4 {
			s.grant(binary.LittleEndian.Uint32(body))
		}
	case typeClose:
		reason := ReasonUnknown
		if len(body) > 0 {
			reason = Reason(body[0])
		}
		if id == 0 {
			return false, fmt.Errorf("%w: the connection was closed: %s", transport.ErrRefused, reason)
		}
		if s := c.stream(id); s != nil {
			s.closedByPeer(reason)
		}
	}
	return false, nil // an unknown type, and INFO after the handshake, are not for us
}

func (c *Conn) stream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// add registers a stream; false if the connection has ended or the id is taken.
func (c *Conn) add(s *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.streams[s.id] != nil {
		return false
	}
	c.streams[s.id] = s
	return true
}

// Streams is how many streams are open, those to other hosts included.
func (c *Conn) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}

// forget drops a stream that is over on both sides.
func (c *Conn) forget(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, id)
}

// reserve accounts for n bytes more, or less, in the queues of all streams.
func (c *Conn) reserve(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.queued > c.limits.connBytes
	c.queued += n
	c.limits.budget.Add(n)
	if was && c.queued <= c.limits.connBytes {
		close(c.room)
		c.room = make(chan struct{})
	}
}

// fullUp reports whether the queues hold more than they should; room is closed when they do not any more. Of the
// process's budget nobody is told when it has room: later is when to look again, nil if that need not be.
func (c *Conn) fullUp() (room <-chan struct{}, later <-chan time.Time, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full = c.queued > c.limits.connBytes
	if c.limits.budget.Spent(c.queued) {
		full, later = true, time.After(budgetPoll)
	}
	return c.room, later, full
}

// end ends every stream with the reason why the connection did.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed, c.endErr = true, err
	streams := c.streams
	c.streams = map[uint32]*Stream{}
	c.mu.Unlock()
	c.sayGoodbye(err)
	close(c.done)
	for _, s := range streams {
		s.connectionEnded(err)
	}
	c.w.close()
	c.conn.Close()
}

// sayGoodbye sends the close frame that an end asks for, and lets it arrive: a socket that is closed while
// bytes of the peer wait in it sends a reset, and a reset overtakes what was sent before it.
func (c *Conn) sayGoodbye(err error) {
	code := 0
	var broken *ws.ProtocolError
	switch {
	case errors.As(err, &broken):
		code = broken.Code
	case errors.Is(err, ws.ErrClosed):
		code = ws.CloseNormal
	default:
		return
	}
	_ = c.w.raw(ws.Close(code, c.client))
	c.w.drain(goodbye)
	hc, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || hc.CloseWrite() != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(goodbye))
	_, _ = io.CopyN(io.Discard, c.conn, goodbyeBytes)
}

// AcceptStream returns the next stream to a built-in destination. A client accepts none.
func (c *Conn) AcceptStream(ctx context.Context) (transport.MuxStream, error) {
	select {
	case s := <-c.accepted:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
	}
	select { // streams that came before the end are still served
	case s := <-c.accepted:
		return s, nil
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, orderly(c.endErr)
}

// orderly is io.EOF for an end as connections have it.
func orderly(err error) error {
	if errors.Is(err, ws.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return io.EOF
	}
	return err
}

// Close ends the connection: what streams have written goes out first, within a short time.
func (c *Conn) Close() error {
	c.w.drain(2 * time.Second)
	_ = c.w.raw(ws.Close(ws.CloseNormal, c.client))
	c.w.drain(time.Second)
	c.end(net.ErrClosed)
	c.wg.Wait()
	return nil
}

// Violations counts the packets that clients have sent beyond their credit.
func (c *Conn) Violations() uint64 { return c.violations.Load() }

// buffers hold one packet each. They are pooled in one size; a larger message has a buffer of its own.
const pooledBuffer = 64<<10 + ws.HeaderRoom + headerLen

var buffers = sync.Pool{New: func() any { return new([pooledBuffer]byte) }}

func getBuffer() []byte { return buffers.Get().(*[pooledBuffer]byte)[:0] }

func putBuffer(b []byte) {
	if cap(b) == pooledBuffer {
		buffers.Put((*[pooledBuffer]byte)(b[:pooledBuffer]))
	}
}

// growBuffer makes room for n bytes.
func growBuffer(b []byte, n int) []byte {
	bigger := make([]byte, len(b), max(n, 2*cap(b)))
	copy(bigger, b)
	putBuffer(b)
	return bigger
}
