// What is common to the tests: the stacks, and a server that has to be after a fault what it was before.

//go:build linux

package faults

import (
	"slices"
	"strings"
	"testing"
)

// A stack is what a client is told of it.
type stack struct {
	network string // tcp or unix
	noise   bool
	mux     string
}

func (s stack) security() string {
	if s.noise {
		return "noise"
	}
	return "plaintext"
}

func (s stack) name() string { return s.network + "+" + s.security() + "+" + s.mux }

// client is the arguments of a client of this stack, before its target.
func (s stack) client(args ...string) []string {
	return append(args, "--security", s.security(), "--mux", s.mux)
}

func stacks() (all []stack) {
	for _, network := range []string{"tcp", "unix"} {
		for _, noise := range []bool{true, false} {
			for _, mux := range []string{"yamux", "wisp", "none"} {
				all = append(all, stack{network, noise, mux})
			}
		}
	}
	return all
}

// onEach runs a test for every stack, with a server of its own that has to be as before at the end.
func onEach(t *testing.T, test func(t *testing.T, s *server, stack stack)) {
	for _, stack := range stacks() {
		t.Run(stack.name(), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, stack.network, "")
			s.served(stack)
			before := s.files()
			t.Run("faults", func(t *testing.T) { test(t, s, stack) }) // with all its parallel parts
			s.served(stack)
			s.rests(before)
			if text := s.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
				t.Errorf("the server says:\n%s", text)
			}
		})
	}
}

// ways is a client's arguments for an upload and for a download.
func ways(args []string) map[string][]string {
	return map[string][]string{"up": args, "down": append(slices.Clone(args), "-R")}
}
