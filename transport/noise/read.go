// The reading half: opening what the socket gave. The picture stands in conn.go.

package noise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// errRecord: a record has been changed, repeated, dropped or reordered on its way.
var errRecord = errors.New("noise: a record does not decrypt: it was changed on its way, or is not the next one")

const (
	// firstRead is the size of the buffer at first: a connection that never has more to read at
	// once does not need batch bytes.
	firstRead = 16 << 10

	// maxOpen bounds how many records are opened ahead of the one that a Read is for.
	maxOpen = 64
)

type reader struct {
	conn net.Conn

	mu       sync.Mutex
	crew     *crew
	buf      []byte
	from, to int      // buf[from:to] has been read from conn and not been opened
	full     bool     // the last read from conn filled buf
	plain    [][]byte // opened, in order; parts of buf
	next     int      // plain[next:] has not been delivered
	nonce    uint64   // of the next record
	err      error    // final; returned once plain is delivered
}

func (r *reader) read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if n := r.deliver(b); n > 0 {
			return n, nil
		}
		if r.err != nil {
			return 0, r.err
		}
		records, n := r.open(b)
		switch {
		case n > 0:
			return n + r.deliver(b[n:]), nil
		case records > 0 || r.err != nil:
			continue
		}
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
}

// deliver copies opened bytes to b.
func (r *reader) deliver(b []byte) (n int) {
	for n < len(b) && r.next < len(r.plain) {
		m := copy(b[n:], r.plain[r.next])
		n += m
		if r.plain[r.next] = r.plain[r.next][m:]; len(r.plain[r.next]) == 0 {
			r.next++
		}
	}
	return n
}

// open opens the whole records in buf, and returns how many those were. The first of them go to b
// directly, as far as they fit whole: n bytes in all. The others are left in plain.
func (r *reader) open(b []byte) (records, n int) {
	direct := r.parse(b)
	jobs := r.crew.jobs
	r.crew.run()
	for i := range jobs {
		if jobs[i].err != nil {
			r.err = errRecord
			break
		}
		size := len(jobs[i].data) - tagSize
		if i < direct {
			n += size
		} else if size > 0 {
			r.plain = append(r.plain, jobs[i].dst[:size])
		}
	}
	clear(jobs) // keep nothing of the caller's alive
	return len(jobs), n
}

// parse makes jobs of the whole records in buf, and returns how many of them go to b.
func (r *reader) parse(b []byte) (direct int) {
	r.plain, r.next = r.plain[:0], 0
	jobs, fits := r.crew.jobs[:0], true
	for len(jobs) < maxOpen && r.to-r.from >= lengthSize {
		size := int(binary.BigEndian.Uint16(r.buf[r.from:]))
		if r.to-r.from < lengthSize+size {
			break
		}
		if size < tagSize || r.nonce == maxNonce {
			if len(jobs) == 0 { // otherwise, after what comes before it
				r.err = badRecord(size)
			}
			break
		}
		data := r.buf[r.from+lengthSize:][:size:size]
		dst := data[:0]
		if fits = fits && size-tagSize <= len(b); fits {
			dst, b = b[:0:size-tagSize], b[size-tagSize:]
			direct++
		}
		jobs = append(jobs, job{nonce: r.nonce, dst: dst, data: data})
		r.nonce++
		r.from += lengthSize + size
	}
	r.crew.jobs = jobs
	return direct
}

func badRecord(size int) error {
	if size < tagSize {
		return fmt.Errorf("noise: a record of %d bytes is shorter than its %d-byte tag", size, tagSize)
	}
	return errNonces
}

// fetch reads from the connection. There must be nothing to deliver and no whole record in buf.
func (r *reader) fetch() error {
	rest := r.buf[r.from:r.to]
	switch {
	case r.buf == nil:
		r.buf = make([]byte, firstRead)
	case r.full && len(r.buf) < batch:
		r.buf = make([]byte, batch)
	}
	r.from, r.to = 0, copy(r.buf, rest)

	n, err := r.conn.Read(r.buf[r.to:])
	r.to += n
	r.full = r.to == len(r.buf)
	if n > 0 || err == nil {
		return nil // an error comes again
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return err // the next Read may go on
	case err == io.EOF && r.to == 0:
		r.err = io.EOF
	case err == io.EOF:
		r.err = fmt.Errorf("noise: the connection ended inside a record: %w", io.ErrUnexpectedEOF)
	default:
		r.err = fmt.Errorf("reading noise records: %w", err)
	}
	return r.err
}
