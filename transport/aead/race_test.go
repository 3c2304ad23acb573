//go:build race

package aead

// The race detector makes sync.Pool drop items at random, and purego keeps its call frames in one.
const raceEnabled = true
