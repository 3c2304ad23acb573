// Package run builds the peers, decides which cells there are, and measures them: repetitions interleaved
// over all cells in shuffled order, so that a slow minute of the machine falls on all of them alike.
package run

import (
	"path"
	"slices"
	"strings"

	"muxperf/matrix/cell"
	"muxperf/matrix/peer"
)

// A Shape is how many streams on how many connections.
type Shape struct{ Connections, Streams int }

// A Selection says which cells are wanted.
type Selection struct {
	Only, Skip []string // peers, or client:server, with * and ?; Only empty means all
	Stacks     []string // empty: all
	Shapes     []Shape
	WispShapes []Shape
	Modes      []string // of Wisp
	Noise      bool     // copy one cell of each stack
}

// Stacks is every stack, in the order of tables.
func Stacks() []string {
	return []string{"noise+yamux", "plaintext+yamux", "plaintext+wisp", "noise+wisp", "noise+none", "plaintext+none"}
}

// Cells lists the cells of peers, in the order of tables.
func Cells(peers []*peer.Peer, sel Selection) []*cell.Cell {
	var out []*cell.Cell
	for _, stack := range Stacks() {
		if len(sel.Stacks) > 0 && !slices.Contains(sel.Stacks, stack) {
			continue
		}
		copied := !sel.Noise
		for _, shape := range sel.shapes(stack) {
			for _, mode := range sel.modes(stack) {
				for _, client := range peers {
					for _, server := range peers {
						if !meet(client, server, stack) || !sel.wants(client.Name, server.Name) {
							continue
						}
						c := &cell.Cell{Key: cell.Key{Client: client.Name, Server: server.Name, Stack: stack, Mode: mode,
							Streams: shape.Streams, Connections: shape.Connections}}
						c.State, c.Reason = beforehand(client, server, stack, mode)
						out = append(out, c)
						if !copied && c.State == "" {
							copied = true
							again := *c
							again.Copy = 1
							out = append(out, &again)
						}
					}
				}
			}
		}
	}
	return out
}

func (s Selection) shapes(stack string) []Shape {
	if isWisp(stack) {
		return s.WispShapes
	}
	return s.Shapes
}

func (s Selection) modes(stack string) []string {
	if isWisp(stack) {
		return s.Modes
	}
	return []string{""}
}

func isWisp(stack string) bool { return strings.HasSuffix(stack, "+wisp") }

// meet reports whether client and server are of one kind and both have the stack.
func meet(client, server *peer.Peer, stack string) bool {
	if !client.Dials(stack) || !server.Serves(stack) {
		return false
	}
	for _, k := range client.Kind {
		if slices.Contains(server.Kind, k) && (k == peer.Wisp) == isWisp(stack) {
			return true
		}
	}
	return false
}

// beforehand is the state of a cell that is not worth trying.
func beforehand(client, server *peer.Peer, stack, mode string) (cell.State, string) {
	for _, p := range []*peer.Peer{client, server} {
		if p.Unavailable != "" {
			return cell.Unavailable, p.Name + ": " + p.Unavailable
		}
	}
	if why := peer.WhyNot(client, server, stack); why != "" {
		return cell.Unsupported, why
	}
	if m := client.Client.Modes; mode != "" && len(m) > 0 && !slices.Contains(m, mode) {
		return cell.Unsupported, client.Name + " has no mode " + mode
	}
	return "", ""
}

// wants applies --only and --skip.
func (s Selection) wants(client, server string) bool {
	if len(s.Only) > 0 && !matches(s.Only, client, server, true) {
		return false
	}
	return !matches(s.Skip, client, server, false)
}

// matches reports whether a pattern fits the pair. A single name among patterns to keep has to fit both
// ends, or be one of several that do; among those to leave out, one end is enough.
func matches(patterns []string, client, server string, both bool) bool {
	var c, s bool
	for _, p := range patterns {
		if a, b, pair := strings.Cut(p, ":"); pair {
			if glob(a, client) && glob(b, server) {
				return true
			}
			continue
		}
		c, s = c || glob(p, client), s || glob(p, server)
	}
	if both {
		return c && s
	}
	return c || s
}

func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
