//go:build !linux

package tcp

import (
	"context"
	"net"
)

// DialBlocking is Dial where there is nothing faster.
func DialBlocking(ctx context.Context, network, address string, o Options) (net.Conn, error) {
	return Dial(ctx, network, address, o)
}
