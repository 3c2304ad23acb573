//go:build !linux

package testee

import (
	"context"
	"errors"
	"time"

	"muxperf/measure"
)

var errLinux = errors.New("holding many connections is supported on Linux only")

// FileLimit is not known here.
func FileLimit() (int, error) { return 0, errLinux }

// MaybeWorker reports that this process is none.
func MaybeWorker() bool { return false }

// Shards do not exist here.
type Shards struct{ Address string }

// ServeSharded is not supported here.
func ServeSharded(Spec, Config, int) (*Shards, error) { return nil, errLinux }

// Memory is not known here.
func (*Shards) Memory() int64 { return 0 }

// Close does nothing.
func (*Shards) Close() {}

// HoldOptions say how connections are opened.
type HoldOptions struct {
	Network, Address string
	Batch            int
	Delay            time.Duration
	Timeout          time.Duration
	Patience         time.Duration // for the echoes
}

// A Held is what holding connections gave.
type Held struct {
	Established, Echoed int
	Failed              map[string]int
	Time, Delay         time.Duration
	EchoTime, CloseTime time.Duration
	Connect             measure.Distribution
	Memory              float64
	ListenDrops         uint64
}

// HoldAll is not supported here.
func HoldAll(context.Context, Plan, HoldOptions, time.Duration, func(Held)) (Held, error) {
	return Held{}, errLinux
}

// ListenerMemory is not known here.
func ListenerMemory(int, int) float64 { return 0 }
