// Pacing: a token bucket that says how long to sleep. Nothing spins; a sleep that comes back late is
// made up for by the next ones. What a slow path has cost beyond that is lost for good: a burst would
// measure the burst.

package measure

import (
	"sync"
	"time"
)

// pacerSlack is how much is sent ahead of the mean rate at most: long enough that a timer's jitter
// costs no throughput, short enough that an interval of 100 ms reads right.
const pacerSlack = 5 * time.Millisecond

// pacerDebt is how far behind the mean rate a sender may fall and still catch up.
const pacerDebt = 100 * time.Millisecond

// A Pacer shares a rate between senders. It is safe for concurrent use.
type Pacer struct {
	clock Clock
	rate  float64 // bytes per second

	mu     sync.Mutex
	due    time.Time // when the bytes granted so far are due in full
	maxLag time.Duration
}

// NewPacer makes a pacer of rate bits per second, above 0.
func NewPacer(clock Clock, rate float64) *Pacer { return &Pacer{clock: clock, rate: rate / 8} }

// Take grants n bytes and returns how long to wait before they are sent; 0 to send now.
func (p *Pacer) Take(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	if p.due.IsZero() {
		p.due = now
	}
	lag := now.Sub(p.due)
	p.maxLag = max(p.maxLag, lag)
	if lag > pacerDebt {
		p.due = now.Add(-pacerDebt)
	}
	wait := -lag
	p.due = p.due.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	if wait < pacerSlack {
		return 0
	}
	return wait
}

// MaxLag is by how much the sender fell behind at most: a path slower than the rate, or a late timer.
func (p *Pacer) MaxLag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.maxLag)
}
