// Package measure turns bytes and instants into numbers: meters, intervals, histograms, pacing and
// statistics. It does no I/O, and every clock is given to it.
package measure

import (
	"sync/atomic"
	"time"
)

// A Clock tells the time, with a monotonic reading; time.Now outside of tests.
type Clock func() time.Time

// A Meter counts the payload bytes of one stream in one direction, and notes when the first and the
// last of them passed. Add is cheap (one clock reading, two atomic operations) and is called by one
// goroutine; everything else may be called by any.
type Meter struct {
	recorder *Recorder
	bytes    atomic.Uint64
	first    atomic.Int64 // ns since the recorder's epoch, plus 1; 0 means not yet
	last     atomic.Int64
	_        [128 - 4*8]byte // a cache line pair of its own: neighbours count at full speed too
}

// Add counts n bytes that have just passed.
func (m *Meter) Add(n int) {
	if n <= 0 {
		return
	}
	at := int64(m.recorder.clock().Sub(m.recorder.epoch)) + 1
	if m.first.Load() == 0 {
		m.first.Store(at)
		m.recorder.begin(at)
	}
	m.last.Store(at)
	m.bytes.Add(uint64(n))
}

// Bytes is how many have passed.
func (m *Meter) Bytes() uint64 { return m.bytes.Load() }
