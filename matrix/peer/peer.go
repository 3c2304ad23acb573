// Package peer reads what the matrix knows about an implementation: a peer.yaml, or a command line.
// docs/peers.md is its specification.
package peer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"muxperf/internal/strictyaml"
)

// The kinds: a client meets the servers of its own kind.
const (
	Libp2p = "libp2p"
	Wisp   = "wisp"
	TCP    = "tcp"
)

// A Peer is one implementation.
type Peer struct {
	Name        string        `yaml:"name"`
	About       string        `yaml:"about"`
	Kind        Kinds         `yaml:"kind"`
	Needs       []string      `yaml:"needs"`
	Build       string        `yaml:"build"`
	Version     string        `yaml:"version"`
	Stacks      []string      `yaml:"stacks"`
	Server      *Server       `yaml:"server"`
	Client      *Client       `yaml:"client"`
	Result      string        `yaml:"result"` // json, iperf3 or none
	Unsupported []Unsupported `yaml:"unsupported"`

	Dir         string `yaml:"-"` // where its commands run
	Unavailable string `yaml:"-"` // why it cannot take part; "" if it can
	Versions    string `yaml:"-"` // what its version command printed

	given bool // on the command line
}

// Kinds is one kind, or a list of them.
type Kinds []string

// UnmarshalYAML takes a string or a list.
func (k *Kinds) UnmarshalYAML(n *yaml.Node) error {
	var many []string
	if n.Kind == yaml.ScalarNode {
		many = make([]string, 1)
		err := n.Decode(&many[0])
		*k = many
		return err
	}
	err := n.Decode(&many)
	*k = many
	return err
}

// A Server is how the peer serves.
type Server struct {
	Command string   `yaml:"command"`
	Wisp    string   `yaml:"wisp"`  // the command on Wisp stacks, if it is another
	Ready   string   `yaml:"ready"` // json or tcp
	Stacks  []string `yaml:"stacks"`
	Result  string   `yaml:"result"` // if it is not the peer's
}

// A Client is how the peer dials.
type Client struct {
	Command   string   `yaml:"command"`
	Wisp      string   `yaml:"wisp"` // as the server's
	Protocols []string `yaml:"protocols"`
	Stacks    []string `yaml:"stacks"`
	Modes     []string `yaml:"modes"`  // of Wisp clients: flood, echo; both if left out
	Result    string   `yaml:"result"` // if it is not the peer's
}

// Unsupported is a cell that is known not to work.
type Unsupported struct {
	Stack string `yaml:"stack"` // "" for any
	Peer  string `yaml:"peer"`  // the other end; "" for any
	Role  string `yaml:"role"`  // "server" or "client": which role of this peer; "" for any
	Why   string `yaml:"why"`
}

// Load reads every peer.yaml one level below dir, in the order of names.
func Load(dir string) ([]*Peer, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "peer.yaml"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var peers []*Peer
	for _, f := range files {
		p, err := read(f)
		if err != nil {
			return nil, err
		}
		peers = append(peers, p)
	}
	if len(peers) == 0 {
		return nil, fmt.Errorf("there is no %s/*/peer.yaml", dir)
	}
	return peers, nil
}

// read parses one file and checks it.
func read(file string) (*Peer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p.Dir = filepath.Dir(file)
	return p, nil
}

// Parse reads a peer.yaml. Unknown keys are errors.
func Parse(b []byte) (*Peer, error) {
	p := &Peer{}
	if err := strictyaml.Decode(b, p); err != nil {
		return nil, err
	}
	return p, p.check()
}

func (p *Peer) check() error {
	switch {
	case p.Name == "" || strings.ContainsAny(p.Name, ":,* /"):
		return fmt.Errorf("name %q: want one without ':', ',', '*', '/' and spaces", p.Name)
	case len(p.Kind) == 0:
		return errors.New("kind is missing: libp2p, wisp or tcp")
	case p.Server == nil && p.Client == nil:
		return errors.New("neither server nor client")
	case len(p.Stacks) == 0:
		return errors.New("stacks is missing, such as [noise+yamux]")
	}
	for _, k := range p.Kind {
		if k != Libp2p && k != Wisp && k != TCP {
			return fmt.Errorf("kind %q: want libp2p, wisp or tcp", k)
		}
	}
	for _, s := range p.Stacks {
		if security, mux, ok := strings.Cut(s, "+"); !ok || security == "" || mux == "" {
			return fmt.Errorf("stack %q: want SECURITY+MUX, such as noise+yamux", s)
		}
	}
	if p.Result == "" {
		p.Result = "json"
	}
	for _, r := range []string{p.Result, p.ServerResult(), p.ClientResult()} {
		if !slices.Contains([]string{"json", "iperf3", "none"}, r) {
			return fmt.Errorf("result %q: want json, iperf3 or none", r)
		}
	}
	if p.Server != nil && p.Server.Ready == "" {
		p.Server.Ready = "tcp"
	}
	return nil
}

// Given makes a peer of --server or --client: name[stack,stack…]=COMMAND. The kind follows from the
// placeholders: a {target} is Wisp's.
func Given(role, text string) (*Peer, error) {
	name, command, ok := strings.Cut(text, "=")
	if !ok || command == "" {
		return nil, fmt.Errorf("--%s %s: want NAME=COMMAND or NAME[STACK,…]=COMMAND", role, text)
	}
	p := &Peer{Kind: Kinds{Libp2p}, Stacks: []string{"noise+yamux", "plaintext+yamux"}, Result: "json", Dir: "."}
	name, stacks, listed := strings.Cut(name, "[")
	p.Name = name
	if listed {
		p.Stacks = strings.Split(strings.TrimSuffix(stacks, "]"), ",")
	}
	switch {
	case strings.Contains(command, "{target}") || slices.Contains(p.Stacks, "plaintext+wisp"):
		p.Kind = Kinds{Wisp}
		if !listed {
			p.Stacks = []string{"plaintext+wisp"}
		}
	case slices.Contains(p.Stacks, "plaintext+none"):
		p.Kind = Kinds{TCP}
	}
	if role == "server" {
		p.Server = &Server{Command: command, Ready: "tcp", Result: "none", Stacks: p.Stacks}
		if p.Kind[0] == Libp2p {
			p.Server.Ready, p.Server.Result = "json", "json"
		}
	} else {
		p.Client = &Client{Command: command, Protocols: []string{"/perf/1.0.0", "/perf/0.1.0"}, Stacks: p.Stacks}
	}
	p.given = true
	return p, p.check()
}

// Merge adds the role of another peer of the command line to one of the same name. It reports whether that
// could be: each role once, and of one kind.
func (p *Peer) Merge(q *Peer) bool {
	switch {
	case !p.given || !q.given || p.Kind[0] != q.Kind[0]:
		return false
	case q.Server != nil && p.Server == nil:
		p.Server = q.Server
	case q.Client != nil && p.Client == nil:
		p.Client = q.Client
	default:
		return false
	}
	return true
}

// ServerResult is how the server tells what it received.
func (p *Peer) ServerResult() string {
	if p.Server != nil && p.Server.Result != "" {
		return p.Server.Result
	}
	return p.Result
}

// ClientResult is how the client tells what it sent.
func (p *Peer) ClientResult() string {
	if p.Client != nil && p.Client.Result != "" {
		return p.Client.Result
	}
	return p.Result
}

// CommandOn is the command on a stack.
func (s *Server) CommandOn(stack string) string { return commandOn(s.Command, s.Wisp, stack) }

// CommandOn is the command on a stack.
func (c *Client) CommandOn(stack string) string { return commandOn(c.Command, c.Wisp, stack) }

func commandOn(command, wisp, stack string) string {
	if wisp != "" && strings.HasSuffix(stack, "+wisp") {
		return wisp
	}
	return command
}

// Missing names the programs that the peer needs and that are not on PATH.
func (p *Peer) Missing() []string {
	var out []string
	for _, n := range p.Needs {
		if _, err := exec.LookPath(n); err != nil {
			out = append(out, n)
		}
	}
	return out
}

// Serves reports whether the peer plays the server on a stack.
func (p *Peer) Serves(stack string) bool {
	return p.Server != nil && slices.Contains(either(p.Server.Stacks, p.Stacks), stack)
}

// Dials reports whether the peer plays the client on a stack.
func (p *Peer) Dials(stack string) bool {
	return p.Client != nil && slices.Contains(either(p.Client.Stacks, p.Stacks), stack)
}

func either(own, all []string) []string {
	if len(own) > 0 {
		return own
	}
	return all
}

// WhyNot is the declared reason why client and server do not meet on a stack; "" if they do.
func WhyNot(client, server *Peer, stack string) string {
	for _, side := range []struct {
		p, other *Peer
		role     string
	}{{client, server, "client"}, {server, client, "server"}} {
		for _, u := range side.p.Unsupported {
			if (u.Stack == "" || u.Stack == stack) && (u.Peer == "" || u.Peer == side.other.Name) && (u.Role == "" || u.Role == side.role) {
				return u.Why
			}
		}
	}
	return ""
}

// Fill puts values into a command's placeholders. One that is unknown is an error: a typing mistake would
// otherwise reach the peer.
func Fill(command string, values map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(command, "{")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if v, known := values[name]; ok && known {
			b.WriteString(v)
		} else if ok && !strings.ContainsAny(name, " \"'$") {
			return "", fmt.Errorf("there is no placeholder {%s}", name)
		} else { // a brace of the shell
			b.WriteString("{")
			command = rest
			continue
		}
		command = after
	}
}
