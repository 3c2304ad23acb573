// A bound on what all connections of a process buffer together.

package transport

import "sync/atomic"

// A Budget is how many bytes of payload that nobody has read yet a process may hold, over all its connections.
// It does not refuse: a connection that finds the budget spent stops reading, and TCP tells its peer. A nil
// *Budget has no bound.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// SmallShare is what a connection may hold even if the budget is spent: those that caused it stand still, and
// the others go on.
const SmallShare = 1 << 20

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Add accounts for n bytes more, or less.
func (b *Budget) Add(n int) {
	if b != nil {
		b.used.Add(int64(n))
	}
}

// Spent reports whether a connection that holds so many bytes should wait.
func (b *Budget) Spent(held int) bool {
	return b != nil && held > SmallShare && b.used.Load() > b.limit
}

// Used is how many bytes are held now.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}
