package link

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoServer answers until it is closed.
func echoServer(t *testing.T) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.Copy(c, c); err == nil {
					c.(*net.TCPConn).CloseWrite()
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestDelayRateAndEndOfData(t *testing.T) {
	const delay, rate, size = 20 * time.Millisecond, 80e6, 1 << 20
	k, err := Listen(t.Context(), echoServer(t), Path{Rate: rate, Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	c, err := net.Dial("tcp4", k.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	one := []byte{1}
	c.Write(one) // opens the far connection
	io.ReadFull(c, one)
	start := time.Now()
	c.Write(one)
	if _, err := io.ReadFull(c, one); err != nil {
		t.Fatal(err)
	}
	if rtt := time.Since(start); rtt < 2*delay {
		t.Errorf("a round trip took %v, less than the path's %v", rtt, 2*delay)
	}
	want := bytes.Repeat([]byte("link"), size/4)
	start = time.Now()
	go func() {
		c.Write(want)
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	took := time.Since(start)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(want), err)
	}
	if least := time.Duration(size * 8 / rate * float64(time.Second)); took < least {
		t.Errorf("%d bytes took %v, less than the line needs: %v", size, took, least)
	}
}

func TestCutOffHereIsCutOffThere(t *testing.T) {
	k, err := Listen(t.Context(), echoServer(t), Path{Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp4", k.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte{1})
	io.ReadFull(c, make([]byte, 1))
	k.Close()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the link was closed and the connection goes on")
	}
}
