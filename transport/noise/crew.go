// The crew: sealing or opening several records at once.
//
// One goroutine, the owner, has a batch of records and wants them all done; helpers lend a hand.
// The owner never waits for a helper to be scheduled: it wakes those that sleep, takes records
// itself until none is left, and then waits only for those that a helper has already taken. What is
// left to take is one atomic number. A helper may look at the batch only after it has taken a
// record of it: until that is done the owner cannot go on to the next batch.

package noise

import (
	"crypto/cipher"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// A job is one record: data becomes dst, which has room for it and may be the same memory.
type job struct {
	nonce uint64
	dst   []byte // empty, with capacity for the result
	data  []byte // plaintext to seal; ciphertext and tag to open
	err   error  // of opening
}

// A crew works on the records of one direction. Only one goroutine at a time may own it.
type crew struct {
	aead    cipher.AEAD
	sealing bool
	nonce   [chacha20NonceSize]byte // the owner's

	helpers  int
	start    sync.Once
	done     <-chan struct{}
	wake     chan struct{}
	jobs     []job
	left     atomic.Int32  // records not taken: the last ones of jobs
	pending  atomic.Int32  // records not done
	finished chan struct{} // one token for each batch
}

// chacha20NonceSize is that of ChaCha20-Poly1305 and of AES-GCM alike.
const chacha20NonceSize = 12

// minShare is how many bytes beyond the largest record make helpers worth waking: sealing 16 KiB
// takes about as long as waking a goroutine on another processor.
const minShare = 16 << 10

// newCrew returns a crew with so many helpers, which start when they are first needed and end with
// done. The owner appends to jobs and calls run.
func newCrew(aead cipher.AEAD, helpers int, done <-chan struct{}) *crew {
	return &crew{aead: aead, helpers: helpers, done: done,
		wake: make(chan struct{}), finished: make(chan struct{}, 1)}
}

// run does all jobs. They are seen as done when it returns; their errors are in them.
func (c *crew) run() {
	n := len(c.jobs)
	if c.helpers <= 0 || !c.worthSharing() {
		for i := range c.jobs {
			c.do(&c.jobs[i], &c.nonce)
		}
		return
	}
	c.start.Do(c.hire)
	c.pending.Store(int32(n))
	c.left.Store(int32(n))
	for range min(c.helpers, n-1) {
		select {
		case c.wake <- struct{}{}:
		default: // all are busy
		}
	}
	c.work(&c.nonce)
	<-c.finished
}

// worthSharing says whether a helper would have enough to do to be worth waking.
func (c *crew) worthSharing() bool {
	total, largest := 0, 0
	for i := range c.jobs {
		total += len(c.jobs[i].data)
		largest = max(largest, len(c.jobs[i].data))
	}
	return total-largest >= minShare
}

// hire starts the helpers.
func (c *crew) hire() {
	for range c.helpers {
		go func() {
			nonce := new([chacha20NonceSize]byte)
			for {
				select {
				case <-c.wake:
					c.work(nonce)
				case <-c.done:
					return
				}
			}
		}()
	}
}

// work takes records until none is left.
func (c *crew) work(nonce *[chacha20NonceSize]byte) {
	for {
		left := c.left.Load()
		if left == 0 {
			return
		}
		if !c.left.CompareAndSwap(left, left-1) {
			continue
		}
		c.do(&c.jobs[len(c.jobs)-int(left)], nonce)
		if c.pending.Add(-1) == 0 {
			c.finished <- struct{}{}
		}
	}
}

// do seals or opens one record. The nonce is four zero bytes and the little-endian number of the
// record (Noise, section 12.3).
func (c *crew) do(j *job, nonce *[chacha20NonceSize]byte) {
	binary.LittleEndian.PutUint64(nonce[4:], j.nonce)
	if c.sealing {
		c.aead.Seal(j.dst, nonce[:], j.data, nil)
		return
	}
	_, j.err = c.aead.Open(j.dst, nonce[:], j.data, nil)
}
