// Package tcp is the carrier layer: it dials and listens on TCP and Unix sockets, sets the socket
// options that a test asks for, and reads what the kernel knows about a connection.
package tcp

import "time"

// Options are the socket options of a connection; the zero value leaves the system's defaults.
type Options struct {
	Bind        string        // local address, host or host%device; "" lets the kernel choose
	ClientPort  int           // local port of a dialer; 0 lets the kernel choose
	Delay       bool          // leave Nagle's algorithm on (TCP_NODELAY is set otherwise, as libp2p does)
	SocketBuf   int           // SO_SNDBUF and SO_RCVBUF, bytes
	MSS         int           // TCP_MAXSEG, bytes
	Congestion  string        // TCP_CONGESTION, such as "cubic" or "bbr"
	TOS         int           // IP_TOS or IPV6_TCLASS, 0-255
	ReusePort   bool          // SO_REUSEPORT: several processes may listen on the port
	Backlog     int           // accept backlog of a listener; 0 is the system's
	UserTimeout time.Duration // TCP_USER_TIMEOUT: how long sent data may stay unacknowledged
}
