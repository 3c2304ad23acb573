package link

import "sync"

// A queue holds what is on a path, bounded in bytes: reads are often short, and a bound in parcels would be a
// shorter path for a peer that writes in small pieces.
type queue struct {
	limit   int
	mu      sync.Mutex
	changed *sync.Cond
	parcels []parcel
	bytes   int
	ended   bool
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put waits until there is room.
func (q *queue) put(p parcel) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes >= q.limit {
		q.changed.Wait()
	}
	q.parcels = append(q.parcels, p)
	q.bytes += len(p.data)
	q.changed.Broadcast()
}

// get waits for a parcel; false at the end.
func (q *queue) get() (parcel, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.parcels) == 0 {
		if q.ended {
			return parcel{}, false
		}
		q.changed.Wait()
	}
	p := q.parcels[0]
	q.parcels = q.parcels[1:]
	q.bytes -= len(p.data)
	q.changed.Broadcast()
	return p, true
}

// end lets get tell when the last parcel has been taken.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.changed.Broadcast()
}
