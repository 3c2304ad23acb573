// Tests of what the handshakes share.

package handshake

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"muxperf/transport"
	"muxperf/transport/identity"
)

func TestInterruptible(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := Interruptible(ctx, a)
	go cancel(why)
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read returned %v", err)
	}
	if err := stop(); err != why {
		t.Errorf("stop returned %v", err)
	}
}

// A context that ends after the handshake leaves the connection alone.
func TestInterruptibleStopped(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	if err := Interruptible(ctx, a)(); err != nil {
		t.Errorf("stop returned %v", err)
	}
	cancel()
	go b.Write([]byte("x"))
	if _, err := a.Read(make([]byte, 1)); err != nil {
		t.Errorf("Read returned %v", err)
	}
}

func TestCheckPeer(t *testing.T) {
	one, two := identity.FromSeed([32]byte{1}).ID(), identity.FromSeed([32]byte{2}).ID()
	if err := CheckPeer("", one); err != nil {
		t.Error(err)
	}
	if err := CheckPeer(one, one); err != nil {
		t.Error(err)
	}
	err := CheckPeer(one, two)
	if !errors.Is(err, transport.ErrPeerID) || !strings.Contains(err.Error(), one.String()) || !strings.Contains(err.Error(), two.String()) {
		t.Errorf("error %v", err)
	}
}
