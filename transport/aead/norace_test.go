//go:build !race

package aead

const raceEnabled = false
