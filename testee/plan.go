// Planning for the machine's limits. Holding many connections meets them in this order: descriptors of a
// process (a hard limit that root cannot raise on some machines), ephemeral ports of a source address, and
// the search for a free port, which gets slow when more than half of an address's are taken.

package testee

import (
	"fmt"
	"net/netip"
)

const (
	reserveFiles = 200   // descriptors that a process needs for itself
	perSource    = 4_500 // connections of one source address: the kernel's search for a free port gets slower long before half of an address's are taken
)

// A Plan says how a number of connections is held.
type Plan struct {
	Connections int
	Processes   int // of clients, each with its share
	FileLimit   int // descriptors of a process
	Sources     int // source addresses, all processes together; 1 means the system's choice
	Words       []string
}

// An Origin is where connections can come from.
type Origin int

const (
	FromHost     Origin = iota // one source address, with its ephemeral ports
	FromLoopback               // all of 127.0.0.0/8 is ours
	FromPath                   // Unix sockets have neither addresses nor ports
)

// MakePlan plans for n connections to a target with fileLimit descriptors in a process.
func MakePlan(n, fileLimit int, from Origin) (Plan, error) {
	room := fileLimit - reserveFiles
	if room < 1 {
		return Plan{}, fmt.Errorf("the limit of open files, %d, leaves no room for connections: raise it with ulimit -n", fileLimit)
	}
	p := Plan{Connections: n, FileLimit: fileLimit, Processes: (n + room - 1) / room, Sources: 1}
	p.Words = append(p.Words, fmt.Sprintf("%d client processes, since each may have %d open files", p.Processes, fileLimit))
	switch {
	case from == FromLoopback:
		most := (n + p.Processes - 1) / p.Processes // of a process, whose addresses are its own
		p.Sources = p.Processes * ((most + perSource - 1) / perSource)
		p.Words = append(p.Words, fmt.Sprintf("%d source addresses, at most %d connections each", p.Sources, perSource))
	case from == FromHost && n > 28_000:
		p.Words = append(p.Words, "one source address: the kernel has some 28,000 ephemeral ports for it")
	}
	return p, nil
}

// A Share is one process's part of a plan.
type Share struct {
	Index       int
	Connections int
	Sources     []netip.Addr // to dial from, in turn; empty leaves it to the system
}

// Shares splits a plan evenly.
func (p Plan) Shares() []Share {
	out := make([]Share, p.Processes)
	for i := range out {
		out[i] = Share{Index: i, Connections: p.Connections / p.Processes}
		if i < p.Connections%p.Processes {
			out[i].Connections++
		}
	}
	if p.Sources > 1 {
		for s := range p.Sources {
			i := s % p.Processes
			out[i].Sources = append(out[i].Sources, sourceAddress(s))
		}
	}
	return out
}

// sourceAddress numbers addresses of loopback: 127.0.1.1 and on, away from the one that servers use.
func sourceAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, byte(1 + i/250), byte(1 + i%250)})
}
