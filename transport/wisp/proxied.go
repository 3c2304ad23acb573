// Streams to real destinations: what the client sends goes to the target's socket, and what the target sends
// goes back, both without a copy of our own where Wisp allows it.

package wisp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"muxperf/transport"
	"muxperf/transport/wisp/proxy"
)

const (
	dialTimeout  = 10 * time.Second
	uploadBatch  = 16               // packets of one write to a target
	letGoTimeout = 10 * time.Second // for a target to end after its client has
)

// proxying dials for one connection.
type proxying struct {
	c     *Conn
	rules proxy.Rules
}

// open serves a stream to a destination that is not ours, in goroutines of its own.
func (p *proxying) open(s *Stream) {
	p.c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		ended := make(chan struct{})
		go func() { // a dial does not outlive its connection
			defer close(ended)
			select {
			case <-p.c.done:
				cancel()
			case <-ctx.Done():
			}
		}()
		network, host, port := s.Destination()
		target, err := p.rules.Dial(ctx, network, host, port)
		cancel()
		<-ended
		if err != nil {
			s.abort(reasonOf(err), transport.ErrRefused)
			return
		}
		s.confirmOpen()
		p.carry(s, target)
	})
}

// reasonOf tells a client why a destination was not reached.
func reasonOf(err error) Reason {
	var dns *net.DNSError
	switch {
	case errors.Is(err, proxy.ErrBlocked):
		return ReasonBlocked
	case errors.As(err, &dns) && dns.IsTimeout:
		return ReasonTimeout
	case errors.As(err, &dns):
		return ReasonUnreachable
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return ReasonUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return ReasonTimeout
	}
	return ReasonNetwork
}

// carry moves bytes both ways until either end has closed. What the client sent before its CLOSE still
// reaches the target.
func (p *proxying) carry(s *Stream, target net.Conn) {
	defer target.Close()
	if s.kind == streamTCP {
		s.sinkTo(trier(target))
	}
	up := make(chan error, 1)
	go func() { up <- upload(s, target) }()
	down := make(chan error, 1)
	go func() { down <- download(s, target) }()
	select {
	case <-up:
		// The client has closed, or its connection has ended: nobody reads what the target still says. It is
		// read all the same, since a socket that is closed over unread bytes resets the connection, and the
		// target would lose what is on its way to it.
		p.letGo(target)
		<-down
		_ = s.Close()
	case err := <-down:
		if errors.Is(err, errClientClosed) {
			drained := make(chan struct{})
			go func() { // a target that is not read from might not read either
				defer close(drained)
				_, _ = io.Copy(io.Discard, target)
			}()
			<-up // what he sent before still goes to the target
			p.letGo(target)
			<-drained
			_ = s.Close()
			return
		}
		reason := ReasonVoluntary
		if err != nil {
			reason = ReasonNetwork
		}
		_ = s.shut(reason)
		target.Close()
		<-up
	}
}

// letGo ends our half towards a target and gives it a while to end its own.
func (p *proxying) letGo(target net.Conn) {
	if hc, ok := target.(interface{ CloseWrite() error }); !ok || hc.CloseWrite() != nil {
		target.Close()
		return
	}
	_ = target.SetReadDeadline(time.Now().Add(letGoTimeout))
	_, _ = io.Copy(io.Discard, target)
	target.Close()
}

// errClientClosed: there is nobody any more to send to.
var errClientClosed = errors.New("the client has closed the stream")

// upload writes the client's packets to the target: those that wait in one vectored write, a datagram by
// itself.
func upload(s *Stream, target net.Conn) error {
	batch := make([][]byte, 0, uploadBatch)
	if s.kind == streamUDP {
		batch = batch[:0:1]
	}
	for {
		pieces, err := s.next(batch)
		if err != nil || len(pieces) == 0 {
			return err
		}
		n := len(pieces)
		out := net.Buffers(pieces)
		if _, err := out.WriteTo(target); err != nil {
			return err
		}
		if err := s.release(n); err != nil {
			return err
		}
	}
}

// download reads from the target and sends packets; a datagram is one packet.
func download(s *Stream, target net.Conn) error {
	buf := make([]byte, s.c.payload)
	for {
		n, err := target.Read(buf)
		if n > 0 || err == nil {
			if _, werr := s.Write(buf[:n]); werr != nil {
				return errClientClosed
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
