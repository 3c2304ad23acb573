// Helpers on net.Conn that several layers need: finding the socket below, and putting back bytes
// that were read to see what they are.
package transport

import "net"

// Underlying returns the socket that conn wraps, through any layer that has a NetConn method (as
// tls.Conn has); conn itself if none does.
func Underlying(conn net.Conn) net.Conn {
	for {
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = w.NetConn()
	}
}

// A Peeked connection reads its prefix first, then the connection: what was read to sniff the
// protocol is given back to the layer that follows.
type Peeked struct {
	net.Conn
	Prefix []byte
}

// Read returns what is left of the prefix alone, then reads the connection.
func (p *Peeked) Read(b []byte) (int, error) {
	if len(p.Prefix) > 0 {
		n := copy(b, p.Prefix)
		p.Prefix = p.Prefix[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// NetConn returns the connection below.
func (p *Peeked) NetConn() net.Conn { return p.Conn }

// CloseWrite half-closes the connection below, if it can.
func (p *Peeked) CloseWrite() error {
	if hc, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return ErrNoHalfClose
}

// NetConn returns the socket below the security layer.
func (s *Secured) NetConn() net.Conn { return s.Conn }

// CloseWrite half-closes the connection below, if it can.
func (s *Secured) CloseWrite() error {
	if hc, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return ErrNoHalfClose
}

// BareStream makes a Stream of a connection on which nothing is negotiated; protocol is what its user
// knows the peer to speak.
func BareStream(conn net.Conn, protocol string) Stream { return &bareStream{conn, protocol} }

type bareStream struct {
	net.Conn
	protocol string
}

func (b *bareStream) Protocol() string { return b.protocol }
func (b *bareStream) CloseWrite() error {
	if hc, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return ErrNoHalfClose
}

// Reset closes the connection with a TCP RST, where it can.
func (b *bareStream) Reset() error {
	if l, ok := Underlying(b.Conn).(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	return b.Close()
}
