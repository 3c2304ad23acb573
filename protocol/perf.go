// The perf protocols of libp2p.
//
// /perf/0.1.0 (mxinden/libp2p-perf): the client writes for as long as it likes and ends its half;
// the server reads to that end and ends its own. Nothing else flows back.
//
// /perf/1.0.0 (libp2p/specs perf/perf.md): the client writes a u64, big endian, the number of bytes
// that it wants back; then its upload, then its end of data. The server reads to that end and only
// then sends what was asked for.
//
// The 16-byte dialect goes by the same name in some images of libp2p's own harness: two u64, the
// bytes that the client will send and the bytes that it wants back. The server reads exactly the
// first number and does not wait for the end of data. On the wire the two cannot be told apart, so
// both ends must be told.

package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"muxperf/transport"
)

// A PerfUpload tells how the client's half of a perf run is to be made.
type PerfUpload struct {
	Payload *Payload
	Block   int       // bytes a write
	Allow   Allowance // how much
	Count   Counter
}

// Perf010Client floods st and waits until the server has drained it. It returns the bytes sent.
func Perf010Client(st transport.Stream, up PerfUpload) (uint64, error) {
	sent, err := Send(st, up.Payload, up.Block, up.Allow, up.Count)
	if err != nil {
		return sent, fmt.Errorf("writing the payload: %w", err)
	}
	return sent, finish(st)
}

// Perf010Server drains st and ends its own half. It returns the bytes received.
func Perf010Server(st transport.Stream, buf []byte, count Counter) (uint64, error) {
	got, err := Drain(st, buf, nil, count)
	if err != nil {
		return got, fmt.Errorf("reading the payload: %w", err)
	}
	return got, st.Close()
}

// finish ends our half of st and waits for the peer's end: only then has it read everything.
func finish(st transport.Stream) error {
	if err := st.CloseWrite(); err != nil {
		return fmt.Errorf("sending the end of data: %w", err)
	}
	if _, err := io.Copy(io.Discard, st); err != nil {
		return fmt.Errorf("waiting for the peer's end of data: %w", err)
	}
	return nil
}

// Perf100Client uploads, then reads download bytes back. It returns both counts, of which the
// second is never above download: more is an error.
func Perf100Client(st transport.Stream, up PerfUpload, download uint64, buf []byte, down Counter) (sent, got uint64, err error) {
	if _, err := st.Write(binary.BigEndian.AppendUint64(nil, download)); err != nil {
		return 0, 0, fmt.Errorf("writing the perf header: %w", err)
	}
	sent, err = Send(st, up.Payload, up.Block, up.Allow, up.Count)
	if err != nil {
		return sent, 0, fmt.Errorf("writing the payload: %w", err)
	}
	if err := st.CloseWrite(); err != nil {
		return sent, 0, fmt.Errorf("sending the end of data: %w", err)
	}
	got, err = receiveAll(st, download, buf, down)
	return sent, got, err
}

// Perf100DialectClient uploads exactly upload bytes, then reads download bytes back.
func Perf100DialectClient(st transport.Stream, up PerfUpload, upload, download uint64, buf []byte, down Counter) (sent, got uint64, err error) {
	header := binary.BigEndian.AppendUint64(nil, upload)
	if _, err := st.Write(binary.BigEndian.AppendUint64(header, download)); err != nil {
		return 0, 0, fmt.Errorf("writing the perf header: %w", err)
	}
	sent, err = Send(st, up.Payload, up.Block, For(upload), up.Count)
	if err != nil {
		return sent, 0, fmt.Errorf("writing the payload: %w", err)
	}
	got, err = receiveAll(st, download, buf, down)
	return sent, got, err
}

// receiveAll reads exactly want bytes and the peer's end of data: only after that has it read everything
// that we sent.
func receiveAll(st io.Reader, want uint64, buf []byte, count Counter) (uint64, error) {
	got, err := receive(st, want, buf, count)
	if err != nil {
		return got, err
	}
	switch n, err := st.Read(buf[:1]); {
	case n > 0:
		return got, fmt.Errorf("%w: more than the %d bytes that were asked for", ErrTooMuch, want)
	case errors.Is(err, io.EOF):
		return got, nil
	default:
		return got, fmt.Errorf("waiting for the peer's end of data: %w", err)
	}
}

// receive drains st and insists on want bytes.
func receive(st io.Reader, want uint64, buf []byte, count Counter) (uint64, error) {
	got, err := Drain(io.LimitReader(st, clampInt64(want)), buf, nil, count)
	if err != nil {
		return got, fmt.Errorf("reading the payload: %w", err)
	}
	if got < want {
		return got, short(got, want)
	}
	return got, nil
}

func clampInt64(n uint64) int64 { return int64(min(n, 1<<63-1)) }

// A PerfServer holds what the serving side of a perf run needs.
type PerfServer struct {
	Buf      []byte    // for reading
	Received Counter   // counts the upload
	Sent     Counter   // counts the download
	Payload  *Payload  // what the download consists of
	Block    int       // bytes a write
	Allow    Allowance // limits the download; nil for none
}

// Serve100 answers one run of /perf/1.0.0 in the form of the specification.
func (p PerfServer) Serve100(st transport.Stream) error {
	var header [8]byte
	if _, err := io.ReadFull(st, header[:]); err != nil {
		return fmt.Errorf("reading the perf header: %w", err)
	}
	if _, err := Drain(st, p.Buf, nil, p.Received); err != nil {
		return fmt.Errorf("reading the payload: %w", err)
	}
	if err := p.send(st, binary.BigEndian.Uint64(header[:])); err != nil {
		return err
	}
	return st.Close()
}

// Serve100Dialect answers one run of the 16-byte dialect.
func (p PerfServer) Serve100Dialect(st transport.Stream) error {
	var header [16]byte
	if _, err := io.ReadFull(st, header[:]); err != nil {
		return fmt.Errorf("reading the perf header: %w", err)
	}
	if _, err := receive(st, binary.BigEndian.Uint64(header[:8]), p.Buf, p.Received); err != nil {
		return err
	}
	if err := p.send(st, binary.BigEndian.Uint64(header[8:])); err != nil {
		return err
	}
	return st.Close()
}

// send writes n bytes, in blocks and within the allowance.
func (p PerfServer) send(st io.Writer, n uint64) error {
	budget := For(n)
	allow := func(want int) int {
		if p.Allow != nil {
			want = p.Allow(want)
		}
		return budget(want)
	}
	if _, err := Send(st, p.Payload, p.Block, allow, p.Sent); err != nil {
		return fmt.Errorf("writing the download: %w", err)
	}
	return nil
}
