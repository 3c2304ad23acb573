// Package faults holds tests alone: every stack, with real programs on real sockets, against everything that a
// network, an operating system or a broken peer does to a connection. What each fault may come to is written in
// the table of broken_test.go; docs/security.md says what was found.
package faults
