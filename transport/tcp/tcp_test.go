package tcp

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accepted dials l with o and returns both ends.
func accepted(t *testing.T, l *Listener, network string, o Options) (client, server net.Conn) {
	t.Helper()
	client, err := Dial(t.Context(), network, l.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func listen(t *testing.T, network, address string, o Options) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), network, address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestOptionsReachTheSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("socket options are set on Linux only")
	}
	l := listen(t, "tcp4", "127.0.0.1:0", Options{Backlog: 7})
	client, _ := accepted(t, l, "tcp4", Options{
		Bind: "127.0.0.2", SocketBuf: 65536, MSS: 1200, Congestion: "reno", TOS: 0x10})
	if host, _, _ := net.SplitHostPort(client.LocalAddr().String()); host != "127.0.0.2" {
		t.Errorf("bound to %s, asked for 127.0.0.2", host)
	}
	info, ok := Info(client)
	if !ok {
		t.Fatal("no TCP_INFO")
	}
	if info.Congestion != "reno" || info.SendBuffer != 2*65536 || info.MSS > 1200 || info.MSS == 0 {
		t.Errorf("the kernel has %+v; asked for reno, 65536 (doubled by the kernel), an MSS of at most 1200", info)
	}
}

func TestInfoCountsBusyTime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("TCP_INFO is read on Linux only")
	}
	l := listen(t, "tcp4", "127.0.0.1:0", Options{})
	client, server := accepted(t, l, "tcp4", Options{})
	if _, err := client.Write(make([]byte, 1<<20)); err == nil {
		_, _ = server.Read(make([]byte, 1<<16))
	}
	info, ok := Info(client)
	if !ok || info.RTT <= 0 || info.CongestionWnd == 0 || info.ReceiveBuffer == 0 {
		t.Errorf("TCP_INFO lacks round trip, window or buffer: %+v, %t", info, ok)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("socket options are set on Linux only")
	}
	l := listen(t, "tcp4", "127.0.0.1:0", Options{})
	for _, tc := range []struct {
		options Options
		want    string
	}{
		{Options{Congestion: "nonesuch"}, `congestion control "nonesuch"`},
		{Options{MSS: 1 << 20}, "MSS"},
		{Options{Bind: "127.0.0.1%nonesuch"}, `device "nonesuch"`},
		{Options{Bind: "no.such.host.invalid"}, "local address"},
	} {
		conn, err := Dial(t.Context(), "tcp4", l.Addr().String(), tc.options)
		if err == nil {
			conn.Close()
			t.Errorf("%+v: no error", tc.options)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %q does not name %q", tc.options, err, tc.want)
		}
	}
}

func TestUnixSocketFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")

	// A socket whose server died without removing it.
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	l, err := Listen(t.Context(), "unix", path, Options{})
	if err != nil {
		t.Fatalf("the socket of a dead server was not replaced: %v", err)
	}

	// One in use.
	if _, err := Listen(t.Context(), "unix", path, Options{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: %v, want EADDRINUSE", err)
	}
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there after Close: %v", err)
	}

	// Something that is no socket.
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix", path, Options{}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a plain file in the way: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "mine" {
		t.Error("the plain file was touched")
	}
}

func TestDialHonoursContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, "tcp", "127.0.0.1:9", Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
