// The goals, one row each.

package main

import "context"

// A goal is a row: a ratio of ours to something, and what it is to be.
type goal struct {
	name, what, against string
	want                float64
	atMost              bool
	measure             func(context.Context, *bench) (samples, error)
	duel                *duel // of the matrix, instead of measure
}

// samples measures a row, or picks it out of a matrix that several rows share.
func (g goal) samples(ctx context.Context, b *bench) (samples, error) {
	if g.duel != nil {
		return b.duel(ctx, *g.duel)
	}
	return g.measure(ctx, b)
}

// goals is the table.
func goals() []goal {
	const ours, golang, rust = "muxperf:muxperf", "go-libp2p:go-libp2p", "rust-libp2p:rust-libp2p"
	noise, plain := group{stack: "noise+yamux", streams: 1, connections: 1}, group{stack: "plaintext+yamux", streams: 1, connections: 1}
	wisp := func(mode string, connections, streams int) *duel {
		return &duel{group: group{"plaintext+wisp", mode, streams, connections}, ours: ours}
	}
	const foreign = "the fastest foreign pair"
	return []goal{
		{name: "noise-go", what: "Noise+Yamux, ours to ours", against: "go to go", want: 2, duel: &duel{noise, ours, golang}},
		{name: "noise-rust", what: "Noise+Yamux, ours to ours", against: "rust to rust", want: 1.3, duel: &duel{noise, ours, rust}},
		{name: "plaintext-go", what: "plaintext+Yamux, ours to ours", against: "go to go", want: 2, duel: &duel{plain, ours, golang}},
		{name: "plaintext-rust", what: "plaintext+Yamux, ours to ours", against: "rust to rust", want: 1.3, duel: &duel{plain, ours, rust}},
		{name: "noise-to-go", what: "Noise+Yamux, ours to go", against: "go to go", want: 1.25, duel: &duel{noise, "muxperf:go-libp2p", golang}},
		{name: "noise-from-go", what: "Noise+Yamux, go to ours", against: "go to go", want: 1.25, duel: &duel{noise, "go-libp2p:muxperf", golang}},
		{name: "wisp-flood-1", what: "Wisp to a discard target (1)", against: foreign, want: 2, duel: wisp("flood", 1, 1)},
		{name: "wisp-flood-10", what: "Wisp to a discard target (10)", against: foreign, want: 2, duel: wisp("flood", 1, 10)},
		{name: "wisp-echo-1", what: "Wisp to a TCP echo (1)", against: foreign, want: 1.3, duel: wisp("echo", 1, 1)},
		{name: "wisp-echo-10", what: "Wisp to a TCP echo (10)", against: foreign, want: 1.3, duel: wisp("echo", 1, 10)},
		{name: "wisp-echo-5x10", what: "Wisp to a TCP echo (5x10)", against: foreign, want: 1.3, duel: wisp("echo", 5, 10)},
		{name: "raw", what: "raw TCP, blocks of 128 KiB", against: "iperf3", want: 1, measure: rawTCP},
		{name: "limit", what: "Noise+Yamux", against: "one AEAD pass and raw TCP at each end", want: 0.85, measure: physicalLimit},
		{name: "latency", what: "Noise+Yamux, p50 of 1-byte round trips, idle", against: "go-libp2p's ping", want: 0.7, atMost: true, measure: idleLatency},
		{name: "allocations", what: "heap allocations per 64 KiB moved, both ends", against: "nothing; the worst stack counts", want: 0.1, atMost: true, measure: allocations},
		{name: "memory", what: "memory of an idle Yamux stream, both ends", against: "go-libp2p", want: 0.5, atMost: true, measure: idleMemory},
	}
}
