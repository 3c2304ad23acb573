// Dialing and listening: the names of net.Dial, with the options applied before connect or listen,
// since MSS, buffers and TOS take effect on the handshake.

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Dial connects to address on network ("tcp", "tcp4", "tcp6" or "unix").
func Dial(ctx context.Context, network, address string, o Options) (net.Conn, error) {
	d := net.Dialer{Control: o.control, KeepAlive: 30 * time.Second}
	if network != "unix" {
		local, err := o.localAddr(ctx, network)
		if err != nil {
			return nil, err
		}
		if local != nil {
			d.LocalAddr = local
		}
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := o.apply(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// localAddr resolves Bind and ClientPort; nil if neither is set.
func (o Options) localAddr(ctx context.Context, network string) (net.Addr, error) {
	if o.Bind == "" && o.ClientPort == 0 {
		return nil, nil
	}
	host, _, _ := strings.Cut(o.Bind, "%") // the device is set by control, unless it is a zone
	if strings.HasPrefix(o.Bind, "fe80:") {
		host = o.Bind
	}
	local := &net.TCPAddr{Port: o.ClientPort}
	if host == "" {
		return local, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, strings.Replace(network, "tcp", "ip", 1), host)
	if err != nil {
		return nil, fmt.Errorf("looking up the local address %q: %w", host, err)
	}
	local.IP, local.Zone = ips[0].AsSlice(), ips[0].Zone()
	return local, nil
}

// Tune sets on a connection that is set up what still takes effect: the buffers (the scale of the windows was
// settled by the handshake), congestion control, and Nagle's algorithm. A Unix socket has the buffers alone, and
// anything that is no socket is left as it is.
func Tune(conn net.Conn, o Options) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	network := "tcp"
	if conn.LocalAddr().Network() == "unix" {
		network = "unix"
	}
	if err := (Options{SocketBuf: o.SocketBuf, Congestion: o.Congestion}).control(network, "", raw); err != nil {
		return err
	}
	return o.apply(conn)
}

// apply sets what can be set on a connected socket.
func (o Options) apply(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetNoDelay(!o.Delay); err != nil {
		return fmt.Errorf("setting TCP_NODELAY: %w", err)
	}
	return nil
}

// A Listener accepts connections with the options applied to each.
type Listener struct {
	net.Listener
	options Options
}

// Listen listens on network ("tcp", "tcp4", "tcp6" or "unix"). A Unix socket that a dead server
// left behind is replaced; one in use is an error.
func Listen(ctx context.Context, network, address string, o Options) (*Listener, error) {
	if network == "unix" {
		if err := removeStaleSocket(address); err != nil {
			return nil, err
		}
	}
	lc := net.ListenConfig{Control: o.control, KeepAlive: 30 * time.Second}
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := o.setBacklog(l); err != nil {
		l.Close()
		return nil, err
	}
	return &Listener{Listener: l, options: o}, nil
}

// Accept returns the next connection. Conditions that pass by themselves, such as a full
// descriptor table, are the caller's to wait out: see Transient.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.options.apply(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Transient reports whether an Accept error will pass: the caller should pause and accept again.
func Transient(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.ECONNABORTED)
}

// removeStaleSocket unlinks path if it is a socket that nobody listens on.
func removeStaleSocket(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket: choose another path or remove it", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s: %w: another server listens there", path, syscall.EADDRINUSE)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("asking whether %s is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the socket of a dead server: %w", err)
	}
	return nil
}
