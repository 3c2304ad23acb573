// Linux: the socket options, and TCP_INFO.

package tcp

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"muxperf/transport"

	"golang.org/x/sys/unix"
)

// control sets the options on a socket before connect or bind.
func (o Options) control(network, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = o.set(int(fd), network) }); err != nil {
		return err
	}
	return failed
}

// set applies each option that is asked for and names the one that failed.
func (o Options) set(fd int, network string) error {
	if o.SocketBuf > 0 {
		for _, opt := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, o.SocketBuf); err != nil {
				return fmt.Errorf("setting the socket buffers to %d bytes: %w", o.SocketBuf, err)
			}
		}
	}
	if network == "unix" {
		return nil
	}
	if o.ReusePort {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return fmt.Errorf("setting SO_REUSEPORT: %w", err)
		}
	}
	if o.MSS > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, o.MSS); err != nil {
			return fmt.Errorf("setting the MSS to %d bytes: %w", o.MSS, err)
		}
	}
	if o.Congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion); err != nil {
			return fmt.Errorf("choosing congestion control %q (see net.ipv4.tcp_available_congestion_control): %w", o.Congestion, err)
		}
	}
	if o.UserTimeout > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(o.UserTimeout/time.Millisecond)); err != nil {
			return fmt.Errorf("setting the TCP user timeout: %w", err)
		}
	}
	if o.TOS > 0 {
		if err := setTOS(fd, network, o.TOS); err != nil {
			return fmt.Errorf("setting the type of service to %d: %w", o.TOS, err)
		}
	}
	if _, device, ok := strings.Cut(o.Bind, "%"); ok && !strings.HasPrefix(o.Bind, "fe80:") {
		if err := unix.BindToDevice(fd, device); err != nil {
			return fmt.Errorf("binding to device %q: %w", device, err)
		}
	}
	return nil
}

// setTOS sets both families' option on an IPv6 socket, since it may carry IPv4 too.
func setTOS(fd int, network string, tos int) error {
	if network == "tcp6" {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos)
		return nil
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos)
}

// setBacklog listens again with the backlog asked for: Go's own is net.core.somaxconn, and a second
// listen(2) on a listening socket only changes the backlog.
func (o Options) setBacklog(l net.Listener) error {
	sc, ok := l.(syscall.Conn)
	if o.Backlog <= 0 || !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return fmt.Errorf("setting the accept backlog: %w", err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), o.Backlog) }); err != nil {
		return fmt.Errorf("setting the accept backlog: %w", err)
	}
	return failed
}

// Info reads the kernel's view of conn, a TCP connection. ok is false for anything else.
func Info(conn net.Conn) (info transport.TCPInfo, ok bool) {
	tcp, isTCP := conn.(*net.TCPConn)
	if !isTCP {
		return info, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return info, false
	}
	var k *unix.TCPInfo
	var congestion string
	var sndbuf, rcvbuf int
	var appLimited bool
	_ = raw.Control(func(fd uintptr) {
		k, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		congestion, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		sndbuf, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		rcvbuf, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	if err != nil || k == nil {
		return info, false
	}
	// The bit field after the window scales holds delivery_rate_app_limited in its lowest bit; the
	// generated struct hides it as padding, in the byte before Rto.
	appLimited = *(*byte)(unsafe.Add(unsafe.Pointer(&k.Rto), -1))&1 != 0
	mss := uint64(k.Snd_mss)
	return transport.TCPInfo{
		Retransmits:   uint64(k.Total_retrans),
		CongestionWnd: uint64(k.Snd_cwnd) * mss,
		RTT:           int64(k.Rtt) * 1000,
		RTTVar:        int64(k.Rttvar) * 1000,
		MinRTT:        int64(k.Min_rtt) * 1000,
		MSS:           k.Snd_mss,
		PathMTU:       k.Pmtu,
		Reordering:    k.Reordering,
		PeerWindow:    uint64(k.Snd_wnd),
		BusyTime:      int64(k.Busy_time) * 1000,
		RwndLimited:   int64(k.Rwnd_limited) * 1000,
		SndbufLimited: int64(k.Sndbuf_limited) * 1000,
		DeliveryRate:  k.Delivery_rate,
		AppLimited:    appLimited,
		Congestion:    string(bytes.TrimRight([]byte(congestion), "\x00")),
		SendBuffer:    sndbuf,
		ReceiveBuffer: rcvbuf,
	}, true
}
