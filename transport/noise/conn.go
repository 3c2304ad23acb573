// The secured connection: net.Conn over the records of the transport phase.
//
// How the bytes go. A record is a big-endian u16 length, up to 65,519 bytes of ciphertext, and a
// 16-byte tag; its nonce is the number of the record in its direction. As the nonces are known in
// advance, records can be sealed and opened in any order and by several goroutines, as long as they
// are sent and delivered in their own.
//
//	Write --> seal, in parallel --> fill | out --> one write of up to batch bytes
//	          the writer + crew     two buffers    the writer itself, or the flusher
//
// Write cuts what it is given into records and gives each its place in the fill buffer, so that the
// records lie in order whoever seals them. It seals straight from the caller's memory and returns
// once that is done: nothing is copied in the clear. The flusher swaps the two buffers and sends
// one of them while the next records are sealed into the other. A write that fits one record,
// while nothing is being sent, is sealed and sent by the writer itself: no goroutine is woken, and
// a small message costs no more than its own system call. Small writes that come while something
// is being sent gather in the fill buffer and leave together.
//
//	socket --> one read of up to batch bytes --> open, in parallel --> deliver in order --> Read
//	                                             the reader + crew
//
// Read takes what the socket has, and opens the whole records in it where they lie, or into the
// caller's memory if they fit there. One record alone is opened by the reader itself. There is no
// goroutine that reads ahead: the kernel's buffer does that already.
//
// The crew is woken without waiting for it (crew.go), so that on a busy machine the writer or
// reader does all the work rather than wait for a processor.
//
// Errors are final in their direction, but for a read that timed out. A record that does not
// decrypt ends reading; nothing of it or after it is delivered.

package noise

import (
	"crypto/cipher"
	"net"
	"runtime"
	"sync"
	"time"

	"muxperf/transport"
)

const (
	lengthSize = 2
	tagSize    = 16
	maxMessage = 65535                // ciphertext and tag, as the length can say
	maxPlain   = maxMessage - tagSize // 65,519
	maxRecord  = lengthSize + maxMessage

	// batch is how much is sent, or read, at once: four full records. More no longer saves system
	// calls worth mentioning, and no longer fits the second-level cache beside the caller's data.
	batch = 4 * maxRecord

	// maxNonce is reserved by the Noise specification (section 5.1) and never used.
	maxNonce = 1<<64 - 1

	// linger is how long Close tries to send what has been written.
	linger = 2 * time.Second
)

// Conn is a connection in the transport phase. Reads, writes, deadlines and Close are safe
// concurrently.
type Conn struct {
	conn   net.Conn // read and written by the halves
	writer *writer
	reader *reader
	done   chan struct{} // ends the helpers
	once   sync.Once
}

// newConn starts the transport phase, with an AEAD for each direction. workers is the number of
// goroutines that seal, and that open, including the caller's own; 0 chooses by the cores.
func newConn(conn net.Conn, seal, open cipher.AEAD, workers int) *Conn {
	if workers <= 0 {
		workers = min(runtime.GOMAXPROCS(0), 4)
	}
	c := &Conn{conn: conn, done: make(chan struct{})}
	w := conn
	if p, ok := conn.(*transport.Peeked); ok {
		w = p.Conn
	}
	c.writer = newWriter(w, newCrew(seal, workers-1, c.done))
	c.reader = &reader{conn: conn, crew: newCrew(open, workers-1, c.done)}
	return c
}

// Read returns decrypted bytes, as many as are there and fit into b. It returns io.EOF if the peer
// ended the connection between two records, io.ErrUnexpectedEOF if within one.
func (c *Conn) Read(b []byte) (int, error) { return c.reader.read(b) }

// Write encrypts and sends b. It may return before all is sent, but not before all is encrypted;
// that sending failed is then the error of a later Write, CloseWrite or Close.
func (c *Conn) Write(b []byte) (int, error) { return c.writer.write(b) }

// CloseWrite sends what has been written and half-closes the connection below, if it can.
func (c *Conn) CloseWrite() error {
	hc, ok := c.conn.(interface{ CloseWrite() error })
	if !ok {
		return transport.ErrNoHalfClose
	}
	if err := c.writer.finish(); err != nil {
		return err
	}
	return hc.CloseWrite()
}

// Close sends what has been written, for two seconds at most, and closes the connection. A Read or
// Write that is under way returns an error.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		flushErr := c.writer.close()
		close(c.done)
		err = c.conn.Close()
		if err == nil {
			err = flushErr
		}
	})
	return err
}

// LocalAddr returns the address of the connection below.
func (c *Conn) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr returns the address of the connection below.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.conn }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline ends a Read at t; a later Read goes on where it was.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SetWriteDeadline ends sending at t. A record may then have been sent in part, so that nothing
// more can be written.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.writer.setDeadline(t) }
