package wisp

import (
	"slices"
	"sync"
)

// A waiter is told once that something has changed. One is used again and again: a channel that is closed for
// each change would be an allocation for each packet.
type waiter chan struct{}

var waiterPool = sync.Pool{New: func() any { return make(waiter, 1) }}

// Waiters are those who wait for one thing. Whoever owns the thing owns the lock under which every method is
// called; in between, a waiter waits on its channel without that lock.
type waiters struct{ all []waiter }

// add returns a waiter for the next wake.
func (w *waiters) add() waiter {
	x := waiterPool.Get().(waiter)
	w.all = append(w.all, x)
	return x
}

// wake tells everybody.
func (w *waiters) wake() {
	for _, x := range w.all {
		x <- struct{}{}
	}
	w.all = w.all[:0]
}

// done ends a wait, however it ended.
func (w *waiters) done(x waiter) {
	if i := slices.Index(w.all, x); i >= 0 {
		w.all = slices.Delete(w.all, i, i+1)
	}
	select {
	case <-x:
	default:
	}
	waiterPool.Put(x)
}
