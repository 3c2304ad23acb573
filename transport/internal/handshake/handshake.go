// Package handshake holds what the security handshakes share: ending them when a context ends, and
// comparing the peer's identity with the one that was dialed.
package handshake

import (
	"context"
	"fmt"
	"net"
	"time"

	"muxperf/transport"
	"muxperf/transport/identity"
)

// Interruptible makes the end of ctx end what waits on conn, by a deadline in the past. The
// returned function undoes that. It must be called once; it returns the context's cause if ctx
// ended first, in which case conn can no longer be used.
func Interruptible(ctx context.Context, conn net.Conn) (stop func() error) {
	fired := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	return func() error {
		if undo() {
			return nil
		}
		<-fired
		return context.Cause(ctx)
	}
}

// CheckPeer returns ErrPeerID, naming both ids, unless got is want or any peer is wanted.
func CheckPeer(want, got identity.ID) error {
	if want == "" || want == got {
		return nil
	}
	return fmt.Errorf("%w: dialed %s, but the peer there is %s", transport.ErrPeerID, want, got)
}
