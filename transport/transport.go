// Package transport holds the vocabulary that all layers share: what a Stream, a Muxer and a
// Session are, and what is known about a connection once it is set up.
//
// A connection is built in three layers, each in a package of its own below this one:
//
//	carrier    tcp/                 an address        -> net.Conn
//	security   noise/  plaintext/   net.Conn          -> Secured (or none)
//	muxer      yamux/  wisp/  raw/  net.Conn          -> Muxer
//
// Package stack puts them together: it turns an address into a Session, and a Session is the only
// thing that the tests in protocol/ see. This package imports none of them, so that each can
// import it.
package transport

import (
	"context"
	"io"
	"net"
	"time"
)

// A Session carries Streams over one connection (over a bundle of connections where there is no
// muxer). It is safe for concurrent use.
type Session interface {
	// Open opens a stream and negotiates protocol on it. The error wraps ErrProtocol if the peer
	// does not speak it.
	Open(ctx context.Context, protocol string) (Stream, error)
	// Accept returns the next stream that the peer opened with a protocol that this side serves.
	// Others are answered `na` and never seen. It returns io.EOF once the session has ended in
	// order.
	Accept(ctx context.Context) (Stream, error)
	// Close ends every stream and the connection.
	Close() error
	Info() Info
	// TCPInfo reads the kernel's view of the connection now: one entry, none for a Unix socket or
	// where the system has no such thing, one per stream where there is no muxer.
	TCPInfo() []TCPInfo
}

// SocketOptions are the options of a run that both ends' sockets get; zero leaves the system's.
type SocketOptions struct {
	Buffer     int    // SO_SNDBUF and SO_RCVBUF, bytes
	Congestion string // TCP congestion control
	Nagle      bool   // leave Nagle's algorithm on
}

// A SocketTuner is a Session whose sockets can be given options while it is open.
type SocketTuner interface {
	// TuneSockets names the option that the system refused.
	TuneSockets(SocketOptions) error
}

// A TargetDialer is a Session that can reach other hosts through the peer, as a Wisp client can.
type TargetDialer interface {
	// DialTarget opens a stream to host:port on network "tcp" or "udp". No protocol is negotiated.
	DialTarget(ctx context.Context, network, host string, port int) (Stream, error)
}

// A StreamCounter is a Session, or a Muxer, that knows how many streams there are, those included that
// Accept does not return: a Wisp server passes them on to other hosts.
type StreamCounter interface {
	Streams() int
}

// A Stream is one byte stream with a protocol agreed on it.
type Stream interface {
	MuxStream
	// Protocol is what was negotiated, such as "/perf/1.0.0".
	Protocol() string
}

// A MuxStream is one byte stream of a Muxer, before a protocol is agreed.
type MuxStream interface {
	io.ReadWriteCloser
	// CloseWrite sends the end of data and leaves the reading half open. It returns
	// ErrNoHalfClose, having done nothing, where the muxer has no such thing (Wisp).
	CloseWrite() error
	// Reset abandons both halves at once; what is in flight is lost.
	Reset() error
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// A Muxer carries many MuxStreams over one connection.
type Muxer interface {
	OpenStream(ctx context.Context) (MuxStream, error)
	// AcceptStream returns io.EOF once the peer has ended the connection in order.
	AcceptStream(ctx context.Context) (MuxStream, error)
	Close() error
}

// A Secured connection is what a security layer makes of a net.Conn.
type Secured struct {
	net.Conn
	LocalPeer  string // our peer id, base58; "" without a security layer
	RemotePeer string // the peer's verified id, base58
	Muxer      string // agreed in the security handshake ("/yamux/1.0.0"), or "" if it has to be negotiated
}

// Info is what is known about a session. Addresses are host:port or a socket path.
type Info struct {
	Stack      Stack
	Local      string
	Remote     string
	LocalPeer  string
	RemotePeer string
	Setup      Setup
}

// Stack names the layers as flags, JSON and tables do.
type Stack struct {
	Carrier  string `json:"carrier"`  // "tcp" or "unix"
	Security string `json:"security"` // "noise" or "plaintext"
	Mux      string `json:"mux"`      // "yamux", "wisp" or "none"
}

// String gives the form that tables and --stack use, such as "noise+yamux".
func (s Stack) String() string { return s.Security + "+" + s.Mux }

// Setup holds how long each layer took to set up, from the dialer's view; zero for a layer that
// is not there.
type Setup struct {
	Connect  time.Duration `json:"connect_ns"`  // carrier: TCP or Unix connect, name look-up included
	Security time.Duration `json:"security_ns"` // negotiation and handshake
	Mux      time.Duration `json:"mux_ns"`      // negotiation; the WebSocket upgrade under Wisp
}
