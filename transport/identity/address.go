// Addresses: the forms in which users and libp2p peers write where a peer is.
//
//	host  host:port  [v6]:port  1.2.3.4  ::1
//	/ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT[/ws][/p2p/ID]      multiaddr; /ipfs/ is the old name of /p2p/
//	/ip6zone/ZONE/ip6/HOST/tcp/PORT…                        multiaddr with an IPv6 zone
//	unix:/path  unix:name  /unix/path[/p2p/ID]              a Unix socket
//	ws://host[:port][/path]                                 a Wisp server's URL
//
// Multiaddr source: github.com/multiformats/multiaddr, protocols.csv.

package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// An Address is where a peer listens, and who it has to be.
type Address struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix", as net.Dial takes it
	Host    string // name or IP literal, without brackets; an IPv6 zone after '%'
	Port    int    // 1 to 65535
	Path    string // of the Unix socket
	Peer    ID     // who has to answer; "" for anybody
	Scheme  string // "ws" if a WebSocket is addressed, otherwise ""
	URLPath string // path and query of the WebSocket URL, "/" at least; only with Scheme "ws"
}

const (
	maxUnixPath = 107 // sockaddr_un has room for 108 bytes and ends with a zero
	webPort     = 80  // of ws:// without a port (RFC 6455, section 3)
)

// ParseAddress reads any of the forms above. defaultPort is used where a host stands without one.
func ParseAddress(s string, defaultPort int) (Address, error) {
	a, err := parseAddress(s, defaultPort)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", s, err)
	}
	return a, nil
}

func parseAddress(s string, defaultPort int) (Address, error) {
	scheme, rest, _ := strings.Cut(s, ":")
	switch {
	case s == "":
		return Address{}, errors.New("is empty")
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Address{}, errors.New("contains a space or a control character")
	case scheme == "unix":
		return unixAddress(strings.TrimPrefix(rest, "//"), "") // two slashes: written as a URL
	case strings.Contains(s, "://"):
		return parseURL(s, scheme)
	case s[0] == '/':
		return parseMultiaddr(s)
	}
	return parseHostPort(s, defaultPort)
}

// parseHostPort reads host, host:port, and IP literals.
func parseHostPort(s string, defaultPort int) (Address, error) {
	host, port := s, strconv.Itoa(defaultPort)
	bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if _, err := netip.ParseAddr(bare); err == nil && (bare == s || len(bare) == len(s)-2) {
		host = bare
	} else if strings.ContainsAny(s, ":[]") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			return Address{}, errors.New("is not host:port; an IPv6 address with a port is written [::1]:4001")
		}
	}
	return tcpAddress("tcp", host, port)
}

// tcpAddress checks host and port.
func tcpAddress(network, host, port string) (Address, error) {
	if err := checkHost(network, host); err != nil {
		return Address{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Address{}, fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return Address{Network: network, Host: host, Port: int(n)}, nil
}

// checkHost refuses what can be neither a name nor an IP literal of the network's family.
func checkHost(network, host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if (network == "tcp4" && !ip.Is4()) || (network == "tcp6" && ip.Is4()) {
			return fmt.Errorf("%s is not an address for %s", host, network)
		}
		if zone := ip.Zone(); strings.ContainsAny(zone, "/[]%?#") {
			return fmt.Errorf("%q is not an IPv6 zone", zone)
		}
		return nil
	}
	if host == "" {
		return errors.New("the host is missing")
	}
	if len(host) > 253 || strings.ContainsAny(host, `/:[]@%?#\"<>^|`+"`{}") {
		return fmt.Errorf("%q is not a host name", host)
	}
	return nil
}

func unixAddress(path string, peer ID) (Address, error) {
	if strings.HasPrefix(path, "/") {
		path = "/" + strings.TrimLeft(path, "/")
	}
	if path == "" || path == "/" {
		return Address{}, errors.New("the socket's path is missing")
	}
	if len(path) > maxUnixPath {
		return Address{}, fmt.Errorf("the socket's path has %d bytes, more than the %d that the kernel allows", len(path), maxUnixPath)
	}
	return Address{Network: "unix", Path: path, Peer: peer}, nil
}

// parseURL reads ws://host[:port][/path].
func parseURL(s, scheme string) (Address, error) {
	switch scheme {
	case "ws":
	case "wss":
		return Address{}, errors.New("wss:// needs TLS, which is not spoken here: put a TLS proxy in front, or use ws://")
	default:
		return Address{}, fmt.Errorf("%s:// is not spoken here: use ws://host:port/, host:port or a multiaddr", scheme)
	}
	u, err := url.Parse(s)
	if err != nil {
		return Address{}, errors.New("is not a valid URL")
	}
	if u.User != nil || strings.Contains(s, "#") {
		return Address{}, errors.New("a ws:// address has neither user nor fragment")
	}
	port := u.Port()
	if port == "" && !strings.HasSuffix(u.Host, ":") {
		port = strconv.Itoa(webPort)
	}
	a, err := tcpAddress("tcp", u.Hostname(), port)
	a.Scheme, a.URLPath = "ws", u.RequestURI()
	return a, err
}

// parseMultiaddr reads the forms that start with a slash.
func parseMultiaddr(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "/unix/"); ok {
		if i := strings.LastIndex(path, "/p2p/"); i >= 0 {
			if peer, err := ParseID(path[i+len("/p2p/"):]); err == nil {
				return unixAddress("/"+path[:i], peer)
			}
		}
		return unixAddress("/"+path, "")
	}
	p := strings.Split(s[1:], "/")
	zone := ""
	if len(p) > 2 && p[0] == "ip6zone" {
		if zone = "%" + p[1]; p[2] != "ip6" || zone == "%" {
			return Address{}, errors.New("/ip6zone/ZONE has to be followed by /ip6/")
		}
		p = p[2:]
	}
	network, ok := map[string]string{"ip4": "tcp4", "ip6": "tcp6", "dns": "tcp", "dns4": "tcp4", "dns6": "tcp6"}[p[0]]
	if !ok {
		return Address{}, fmt.Errorf("/%s is not known: use /ip4, /ip6, /dns, /dns4, /dns6 or /unix", p[0])
	}
	if len(p) < 4 {
		return Address{}, fmt.Errorf("is not /%s/HOST/tcp/PORT", p[0])
	}
	if p[2] != "tcp" {
		return Address{}, fmt.Errorf("/%s is not spoken here, only /tcp", p[2])
	}
	if _, err := netip.ParseAddr(p[1]); strings.HasPrefix(p[0], "ip") != (err == nil) || strings.Contains(p[1], "%") {
		return Address{}, fmt.Errorf("%q does not fit /%s", p[1], p[0])
	}
	a, err := tcpAddress(network, p[1]+zone, p[3])
	if err != nil {
		return Address{}, err
	}
	return a.multiaddrTail(p[4:])
}

// multiaddrTail adds what follows /tcp/PORT.
func (a Address) multiaddrTail(p []string) (Address, error) {
	if len(p) > 0 && p[0] == "ws" {
		a.Scheme, a.URLPath = "ws", "/"
		p = p[1:]
	}
	switch {
	case len(p) == 0:
		return a, nil
	case len(p) == 2 && (p[0] == "p2p" || p[0] == "ipfs"):
		var err error
		a.Peer, err = ParseID(p[1])
		return a, err
	}
	return Address{}, fmt.Errorf("/%s is not understood after the port: only /ws and /p2p/PEER-ID are", strings.Join(p, "/"))
}

// HostPort returns what net.Dial takes: host:port, or the path of the socket.
func (a Address) HostPort() string {
	if a.Network == "unix" {
		return a.Path
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// Multiaddr returns the address in libp2p's form, with peer at its end unless that is empty. A
// path of a WebSocket URL has no place in it.
func (a Address) Multiaddr(peer ID) string {
	var b strings.Builder
	if a.Network == "unix" {
		b.WriteString("/unix/" + strings.TrimPrefix(a.Path, "/"))
	} else {
		fmt.Fprintf(&b, "%s/tcp/%d", a.multiaddrHost(), a.Port)
	}
	if a.Scheme == "ws" {
		b.WriteString("/ws")
	}
	if peer != "" {
		b.WriteString("/p2p/" + peer.String())
	}
	return b.String()
}

func (a Address) multiaddrHost() string {
	ip, err := netip.ParseAddr(a.Host)
	switch {
	case err == nil && ip.Zone() != "":
		return "/ip6zone/" + ip.Zone() + "/ip6/" + ip.WithZone("").String()
	case err == nil && ip.Is4():
		return "/ip4/" + a.Host
	case err == nil:
		return "/ip6/" + a.Host
	}
	return "/dns" + strings.TrimPrefix(a.Network, "tcp") + "/" + a.Host
}

// String returns a form that ParseAddress reads back: host:port where that says everything.
func (a Address) String() string {
	switch {
	case a.Network == "unix" && a.Peer == "":
		return "unix:" + a.Path
	case a.Peer != "" || a.Network != "tcp":
		return a.Multiaddr(a.Peer)
	case a.Scheme == "ws":
		return "ws://" + strings.Replace(a.HostPort(), "%", "%25", 1) + a.URLPath
	}
	return a.HostPort()
}
