// Package testee serves bare sockets: it echoes, discards or generates bytes on TCP and Unix sockets, for
// debugging and for measuring what is on the other end. Nothing is negotiated; telnet, nc, socat and
// netperf -N can talk to it.
//
// It is honest: a peer that does not read is not read from. There are two engines. The portable one has a
// goroutine for each connection. The one on Linux has a thread that waits in epoll and moves the bytes
// itself: no wake-up of a goroutine stands between a request and its answer, and an idle connection costs
// a few dozen bytes.
package testee

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"muxperf/internal/strictyaml"
)

// A Mode is what a testee does with a connection.
type Mode string

// The modes.
const (
	Echo    Mode = "echo"    // what arrives is sent back
	Discard Mode = "discard" // what arrives is dropped
	Chargen Mode = "chargen" // bytes are sent for as long as the peer reads
)

// A Spec is one testee: what it does and where.
type Spec struct {
	ID      string
	Mode    Mode
	Network string // "tcp", "tcp4", "tcp6" or "unix"
	Address string // host:port, or the path of a socket
	Backlog int    // accept backlog; 0 is the system's
	Shared  bool   // SO_REUSEPORT: several processes may listen
	Debug   bool   // log every connection
}

// String is the spec as --testee takes it.
func (s Spec) String() string {
	if s.Network == "unix" {
		return string(s.Mode) + "=unix:" + s.Address
	}
	return string(s.Mode) + "=" + s.Address
}

// ParseSpec reads [echo|discard|chargen=]ADDR, where ADDR is host:port, :port, port or unix:/path.
func ParseSpec(text string) (Spec, error) {
	s := Spec{Mode: Echo, Network: "tcp"}
	address := text
	if mode, rest, ok := strings.Cut(text, "="); ok {
		s.Mode, address = Mode(mode), rest
	}
	if s.Mode != Echo && s.Mode != Discard && s.Mode != Chargen {
		return s, fmt.Errorf("%q: want echo, discard or chargen before the '='", text)
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		s.Network, s.Address = "unix", path
		return s, checkPath(path)
	}
	if _, err := strconv.Atoi(address); err == nil {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return s, fmt.Errorf("%q: want host:port, :port or unix:/path", text)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return s, fmt.Errorf("%q: the port has to be 0 to 65535", text)
	}
	s.Address = net.JoinHostPort(host, port)
	return s, nil
}

// checkPath refuses what cannot be the name of a socket.
func checkPath(path string) error {
	if path == "" || len(path) > 107 {
		return fmt.Errorf("the path of a Unix socket has 1 to 107 bytes, not %d", len(path))
	}
	return nil
}

// A transport is one entry of a configuration file, in Crossbar's form.
type transport struct {
	ID       string `yaml:"id"`
	Type     string `yaml:"type"`
	Endpoint struct {
		Type      string `yaml:"type"`
		Port      any    `yaml:"port"`
		Version   int    `yaml:"version"`
		Interface string `yaml:"interface"`
		Path      string `yaml:"path"`
		Backlog   int    `yaml:"backlog"`
		Shared    bool   `yaml:"shared"`
	} `yaml:"endpoint"`
	Debug bool   `yaml:"debug"`
	Mode  string `yaml:"mode"` // ours: echo, discard or chargen
}

// defaultBacklog is what Crossbar's endpoints have.
const defaultBacklog = 50

// ParseConfig reads a list of transports, YAML or JSON: id, type (stream.testee), endpoint (type tcp or
// unix, port, version, interface, path, backlog, shared), debug, and mode, which is ours. A port may be
// "$NAME" for an environment variable. Unknown keys are errors.
func ParseConfig(b []byte) ([]Spec, error) {
	var list []transport
	if err := strictyaml.Decode(b, &list); err != nil {
		return nil, fmt.Errorf("a list of transports was expected: %w", err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the list of transports is empty")
	}
	specs := make([]Spec, len(list))
	for i, t := range list {
		if t.ID == "" {
			t.ID = fmt.Sprintf("transport%d", i+1)
		}
		s, err := t.spec()
		if err != nil {
			return nil, fmt.Errorf("transport %q: %w", t.ID, err)
		}
		specs[i] = s
	}
	return specs, nil
}

// spec checks one transport.
func (t transport) spec() (Spec, error) {
	if t.Type != "stream.testee" {
		return Spec{}, fmt.Errorf("type %q: only stream.testee is served", t.Type)
	}
	if t.Mode == "" {
		t.Mode = string(Echo)
	}
	e := t.Endpoint
	text := t.Mode + "="
	switch e.Type {
	case "tcp":
		port, err := portOf(e.Port)
		if err != nil {
			return Spec{}, err
		}
		text += net.JoinHostPort(e.Interface, port)
	case "unix":
		text += "unix:" + os.ExpandEnv(e.Path)
	default:
		return Spec{}, fmt.Errorf("endpoint type %q: want tcp or unix", e.Type)
	}
	s, err := ParseSpec(text)
	if err != nil {
		return s, err
	}
	switch {
	case e.Type == "unix":
	case e.Version == 4:
		s.Network = "tcp4"
	case e.Version == 6:
		s.Network = "tcp6"
	case e.Version != 0:
		return s, fmt.Errorf("version %d: want 4 or 6", e.Version)
	}
	s.ID, s.Debug, s.Shared, s.Backlog = t.ID, t.Debug, e.Shared, e.Backlog
	if s.Backlog == 0 {
		s.Backlog = defaultBacklog
	}
	if s.Backlog < 0 {
		return s, fmt.Errorf("backlog %d: want a number above 0", s.Backlog)
	}
	return s, nil
}

// portOf reads a number or the name of an environment variable.
func portOf(v any) (string, error) {
	switch p := v.(type) {
	case int:
		return strconv.Itoa(p), nil
	case string:
		if name, ok := strings.CutPrefix(p, "$"); ok {
			value, set := os.LookupEnv(name)
			if !set {
				return "", fmt.Errorf("port %q: the environment has no such variable", p)
			}
			return value, nil
		}
	case nil:
		return "", fmt.Errorf("port is missing")
	}
	return "", fmt.Errorf("port %q: want a number or \"$NAME\"", fmt.Sprint(v))
}
