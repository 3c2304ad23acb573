// Package proxy decides which destinations a Wisp server dials, and dials them. Nothing is allowed that no
// rule names: a server is never an open proxy.
//
// A rule is HOST:PORT. HOST is a name, a name with a leading *., an address, or a CIDR; PORT is a number, a
// range or *. A name is looked up once, and the address that was checked is the address that is dialed. An
// address that is not public (loopback, private, link-local, multicast, unspecified and the like) is
// reached only through a rule with an address or a CIDR: a rule with a name does not reach it, whatever the
// name resolves to.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrBlocked: no rule allows the destination.
var ErrBlocked = errors.New("destination not allowed")

// A Rule allows destinations.
type Rule struct {
	name      string       // lower case, without a dot at its end; "" for a prefix
	wildcard  bool         // any name below it
	prefix    netip.Prefix // addresses
	low, high int          // ports
}

// Rules allow what any of them does.
type Rules []Rule

// ParseRule reads HOST:PORT.
func ParseRule(s string) (Rule, error) {
	var r Rule
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return r, fmt.Errorf("%q: want HOST:PORT, such as 192.0.2.1:443, 10.0.0.0/8:1-1024 or *.example.org:*", s)
	}
	host, ports := s[:i], s[i+1:]
	if rest, ok := strings.CutPrefix(host, "["); ok {
		inside, suffix, closed := strings.Cut(rest, "]")
		if !closed || suffix != "" && suffix[0] != '/' {
			return r, fmt.Errorf("%q: the bracket is not closed", s)
		}
		host = inside + suffix
	}
	var err error
	if r.low, r.high, err = parsePorts(ports); err != nil {
		return r, fmt.Errorf("%q: %w", s, err)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap().WithZone("")
		r.prefix = netip.PrefixFrom(addr, addr.BitLen())
		return r, nil
	}
	if strings.Contains(host, "/") {
		prefix, err := netip.ParsePrefix(host)
		if err != nil {
			return r, fmt.Errorf("%q: %q is no CIDR", s, host)
		}
		r.prefix = prefix.Masked()
		return r, nil
	}
	r.name = canonical(host)
	if rest, ok := strings.CutPrefix(r.name, "*."); ok {
		r.name, r.wildcard = rest, true
	}
	if r.name == "" || strings.ContainsAny(r.name, "*:[]/ ") {
		return r, fmt.Errorf("%q: %q is no host name", s, host)
	}
	return r, nil
}

func parsePorts(s string) (low, high int, err error) {
	if s == "*" {
		return 1, 65535, nil
	}
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	low, err1 := strconv.Atoi(from)
	high, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || low < 1 || high > 65535 || low > high {
		return 0, 0, fmt.Errorf("port %q: want a number, a range such as 1-1024, or *", s)
	}
	return low, high, nil
}

func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// allowsName reports whether a rule names host.
func (r Rule) allowsName(host string, port int) bool {
	if r.name == "" || port < r.low || port > r.high {
		return false
	}
	return host == r.name && !r.wildcard || r.wildcard && strings.HasSuffix(host, "."+r.name)
}

// allowsAddr reports whether a rule names an address.
func (r Rule) allowsAddr(a netip.Addr, port int) bool {
	return r.name == "" && port >= r.low && port <= r.high && r.prefix.Contains(a)
}

// special reports addresses that no name may lead to.
func special(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return true
	}
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", // RFC 6890
		"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fec0::/10", // and what embeds IPv4
	} {
		if netip.MustParsePrefix(p).Contains(a) {
			return true
		}
	}
	return false
}

// Check returns the addresses of a destination that may be dialed. The error wraps ErrBlocked, or is the
// resolver's.
func (rs Rules) Check(ctx context.Context, host string, port int) ([]netip.Addr, error) {
	if len(rs) == 0 {
		return nil, fmt.Errorf("%w: %s:%d", ErrBlocked, host, port)
	}
	name := canonical(host)
	named := false
	for _, r := range rs {
		named = named || r.allowsName(name, port)
	}
	literal, err := netip.ParseAddr(strings.Trim(host, "[]"))
	addrs := []netip.Addr{literal}
	if err != nil {
		if odd(name) {
			return nil, fmt.Errorf("%w: %q is neither a name nor an address", ErrBlocked, host)
		}
		if !named && !rs.hasPrefixes(port) {
			return nil, fmt.Errorf("%w: %s:%d", ErrBlocked, host, port)
		}
		if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", name); err != nil {
			return nil, err
		}
	}
	var allowed []netip.Addr
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if rs.allows(a, port) || named && !special(a) {
			allowed = append(allowed, a)
		}
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("%w: %s:%d", ErrBlocked, host, port)
	}
	return allowed, nil
}

// odd reports names that some resolvers take for addresses: numbers without dots, octal and hexadecimal
// forms. A name whose last label is a number is none.
func odd(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return true
	}
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || strings.HasPrefix(last, "0x")
}

func (rs Rules) allows(a netip.Addr, port int) bool {
	for _, r := range rs {
		if r.allowsAddr(a, port) {
			return true
		}
	}
	return false
}

func (rs Rules) hasPrefixes(port int) bool {
	for _, r := range rs {
		if r.name == "" && port >= r.low && port <= r.high {
			return true
		}
	}
	return false
}

// Dial connects to an allowed destination: the addresses that were checked are those that are dialed.
func (rs Rules) Dial(ctx context.Context, network, host string, port int) (net.Conn, error) {
	addrs, err := rs.Check(ctx, host, port)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	var failed error
	for _, a := range addrs {
		conn, err := d.DialContext(ctx, network, netip.AddrPortFrom(a, uint16(port)).String())
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}
