//go:build !linux

// Elsewhere only what package net itself offers is available; asking for more is an error, so that
// no result claims an option that was not set.

package tcp

import (
	"errors"
	"net"
	"syscall"

	"muxperf/transport"
)

func (o Options) control(_, _ string, _ syscall.RawConn) error {
	if o.SocketBuf > 0 || o.MSS > 0 || o.Congestion != "" || o.TOS > 0 || o.UserTimeout > 0 || o.ReusePort {
		return errors.New("socket options are supported on Linux only")
	}
	return nil
}

func (o Options) setBacklog(net.Listener) error {
	if o.Backlog > 0 {
		return errors.New("an accept backlog can be set on Linux only")
	}
	return nil
}

// Info knows nothing here.
func Info(net.Conn) (transport.TCPInfo, bool) { return transport.TCPInfo{}, false }
