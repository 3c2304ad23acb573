// Package link simulates a network path in user space: a TCP proxy with a bandwidth, a one-way delay
// and a bounded queue, for machines whose kernel has no netem, and for tests that must not depend on
// one.
//
// Bytes read from one side are stamped with the instant at which the last of them would leave a line of
// the given rate, plus the delay, and written to the other side at that instant. The queue holds what is
// on the line and what waits for it; when it is full, reading stops, and TCP's own flow control tells
// the sender. There is no loss.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Path is what is simulated, the same in both directions.
type Path struct {
	Rate  float64       // bits per second; 0 for no limit
	Delay time.Duration // one way: half a round trip
	Queue int           // bytes that may be on the path; 0 means twice the bandwidth-delay product, at least 1 MiB
}

// chunk is how many bytes are stamped together: 0.13 ms of a 1 Gbit/s line.
const chunk = 16 << 10

func (p Path) queue() int {
	if p.Queue > 0 {
		return p.Queue
	}
	return max(1<<20, int(2*p.Rate/8*2*p.Delay.Seconds()))
}

// A Link is a listener whose connections are carried over a Path to a target.
type Link struct {
	listener net.Listener
	path     Path
	target   string
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// Listen opens a link on a free loopback port to target, a TCP address. Close ends it.
func Listen(ctx context.Context, target string, p Path) (*Link, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening a simulated link: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &Link{listener: l, path: p, target: target, cancel: cancel}
	context.AfterFunc(ctx, func() { l.Close() })
	k.wg.Go(func() { k.accept(ctx) })
	return k, nil
}

// Addr is where to connect.
func (k *Link) Addr() string { return k.listener.Addr().String() }

// Close ends every connection and waits for them.
func (k *Link) Close() error {
	k.cancel()
	k.wg.Wait()
	return nil
}

func (k *Link) accept(ctx context.Context) {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.carry(ctx, near) })
	}
}

// carry connects near to the target and moves bytes both ways until both are done.
func (k *Link) carry(ctx context.Context, near net.Conn) {
	defer near.Close()
	time.Sleep(2 * k.path.Delay) // the SYN and its answer
	var d net.Dialer
	far, err := d.DialContext(ctx, "tcp4", k.target)
	if err != nil {
		return
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { k.oneWay(far, near) })
	wg.Go(func() { k.oneWay(near, far) })
	wg.Wait()
}

// A parcel is a piece of data on its way; a nil one is the end of data.
type parcel struct {
	data []byte
	due  time.Time
}

// oneWay moves bytes from src to dst over the path.
func (k *Link) oneWay(dst, src net.Conn) {
	onPath := newQueue(k.path.queue())
	free := sync.Pool{New: func() any { return new([chunk]byte) }}
	var wg sync.WaitGroup
	wg.Go(func() { deliver(dst, onPath, &free) })
	lineFree := time.Now()
	for {
		buf := free.Get().(*[chunk]byte)
		n, err := src.Read(buf[:])
		now := time.Now()
		if n > 0 {
			if lineFree.Before(now) {
				lineFree = now
			}
			if k.path.Rate > 0 {
				lineFree = lineFree.Add(time.Duration(float64(n) * 8 / k.path.Rate * float64(time.Second)))
			}
			onPath.put(parcel{buf[:n], lineFree.Add(k.path.Delay)})
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				onPath.put(parcel{nil, now.Add(k.path.Delay)})
			} else if l, ok := dst.(*net.TCPConn); ok {
				l.SetLinger(0) // what was cut here is cut there
			}
			break
		}
	}
	onPath.end()
	wg.Wait()
}

// deliver writes each parcel when it is due. After the first failure the rest is dropped.
func deliver(dst net.Conn, onPath *queue, free *sync.Pool) {
	broken := false
	for {
		p, ok := onPath.get()
		if !ok {
			break
		}
		if d := time.Until(p.due); d > 0 && !broken {
			time.Sleep(d)
		}
		switch {
		case broken:
		case p.data == nil:
			if hc, ok := dst.(*net.TCPConn); ok {
				hc.CloseWrite()
			}
			continue
		default:
			_, err := dst.Write(p.data)
			broken = err != nil
		}
		if cap(p.data) >= chunk {
			free.Put((*[chunk]byte)(p.data[:chunk]))
		}
	}
	if broken {
		dst.Close()
	}
}
