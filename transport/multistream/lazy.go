// The lazy dialer: the proposal travels with the first bytes of the layer above, and the answer is
// read when that layer reads. It saves a round trip wherever the listener is expected to agree.
//
// The half-close has to wait for the answer: js-libp2p 3 cannot answer a proposal on a stream that
// has ended already, and hangs (go-libp2p warns of the same). So CloseWrite and Close read the
// answer first.

package multistream

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"muxperf/transport"
)

// closeWait is how long Close waits for an answer that nobody has read so far.
const closeWait = 10 * time.Second

// lazy is the state that both variants share.
type lazy struct {
	rw       io.ReadWriter
	protocol string

	wmu  sync.Mutex
	sent bool
	werr error

	rmu      sync.Mutex
	answered bool
	rerr     error
}

// Write sends header and proposal in front of the first b, in one write.
func (l *lazy) Write(b []byte) (int, error) {
	l.wmu.Lock()
	if l.sent || l.werr != nil {
		err := l.werr
		l.wmu.Unlock()
		if err != nil {
			return 0, err
		}
		return l.rw.Write(b)
	}
	defer l.wmu.Unlock()
	front := appendToken(appendToken(nil, header), l.protocol)
	n, err := l.rw.Write(append(front, b...))
	if err != nil {
		l.werr = fmt.Errorf("proposing %s: %w", l.protocol, err)
	}
	l.sent = true
	return max(0, n-len(front)), l.werr
}

// Read reads the answer before the first bytes. If nothing has been written yet it sends the
// proposal alone.
func (l *lazy) Read(b []byte) (int, error) {
	if err := l.settle(); err != nil {
		return 0, err
	}
	return l.rw.Read(b)
}

// settle sees to it that the proposal is sent and the answer read. Its error is final, since what
// the layer above wrote has already gone out under the proposal.
func (l *lazy) settle() error {
	l.rmu.Lock()
	defer l.rmu.Unlock()
	if l.answered {
		return l.rerr
	}
	if err := l.flush(); err != nil {
		return err
	}
	l.answered = true
	if l.rerr = readHeader(l.rw); l.rerr != nil {
		return l.rerr
	}
	agreed, err := readAnswer(l.rw, l.protocol)
	if err == nil && !agreed {
		err = fmt.Errorf("%w: %s", transport.ErrProtocol, l.protocol)
	}
	l.rerr = err
	return err
}

// flush sends the proposal if no Write has.
func (l *lazy) flush() error {
	l.wmu.Lock()
	sent, err := l.sent, l.werr
	l.wmu.Unlock()
	if sent || err != nil {
		return err
	}
	_, err = l.Write(nil)
	return err
}

// isAnswered says whether there is nothing to wait for.
func (l *lazy) isAnswered() bool {
	l.rmu.Lock()
	defer l.rmu.Unlock()
	return l.answered
}

// A lazyStream proposes on a stream of a muxer.
type lazyStream struct {
	transport.MuxStream
	lazy
}

// SelectLazy returns s with protocol proposed lazily on it. That the peer refused it, or answered
// something else, is the error of the first Read (or CloseWrite), as Select would return it. The
// protocol name has at most 1,023 bytes.
func SelectLazy(s transport.MuxStream, protocol string) transport.MuxStream {
	return &lazyStream{s, lazy{rw: s, protocol: protocol}}
}

func (s *lazyStream) Read(b []byte) (int, error)  { return s.lazy.Read(b) }
func (s *lazyStream) Write(b []byte) (int, error) { return s.lazy.Write(b) }

// CloseWrite waits for the answer, then ends the writing half.
func (s *lazyStream) CloseWrite() error {
	if err := s.settle(); err != nil {
		return err
	}
	return s.MuxStream.CloseWrite()
}

// Close waits at most ten seconds for the answer; without one it resets the stream.
func (s *lazyStream) Close() error {
	if !s.isAnswered() {
		_ = s.SetReadDeadline(time.Now().Add(closeWait))
		if err := s.settle(); err != nil {
			_ = s.Reset()
			return err
		}
	}
	return s.MuxStream.Close()
}

// A lazyConn proposes on a connection.
type lazyConn struct {
	net.Conn
	lazy
}

// SelectLazyConn is SelectLazy for a connection: for the security layer, or for the muxer inside
// it. Close does not wait, since the connection ends with it.
func SelectLazyConn(c net.Conn, protocol string) net.Conn {
	return &lazyConn{c, lazy{rw: c, protocol: protocol}}
}

func (c *lazyConn) Read(b []byte) (int, error)  { return c.lazy.Read(b) }
func (c *lazyConn) Write(b []byte) (int, error) { return c.lazy.Write(b) }

// NetConn returns the connection below.
func (c *lazyConn) NetConn() net.Conn { return c.Conn }

// CloseWrite waits for the answer, then half-closes the connection below, if it can.
func (c *lazyConn) CloseWrite() error {
	if err := c.settle(); err != nil {
		return err
	}
	if hc, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return transport.ErrNoHalfClose
}
