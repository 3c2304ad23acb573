package proxy

import (
	"errors"
	"strings"
	"testing"
)

func rules(t *testing.T, texts ...string) Rules {
	t.Helper()
	var rs Rules
	for _, s := range texts {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func TestWhatIsAllowedAndWhatIsNot(t *testing.T) {
	rs := rules(t, "127.0.0.1:9000", "10.1.0.0/16:1-1024", "[::1]:7", "fd00::/8:*", "localhost:8000", "*.example.org:443", "203.0.113.9:80")
	for _, tc := range []struct {
		host    string
		port    int
		allowed bool
	}{
		{"127.0.0.1", 9000, true},
		{"127.0.0.1", 9001, false},
		{"127.0.0.2", 9000, false},
		{"::ffff:127.0.0.1", 9000, true}, // the IPv4 address that it holds
		{"::ffff:127.0.0.2", 9000, false},
		{"::ffff:169.254.169.254", 80, false},
		{"10.1.2.3", 80, true},
		{"10.1.2.3", 8080, false},
		{"10.2.2.3", 80, false},
		{"::1", 7, true},
		{"[::1]", 7, true},
		{"::1%lo", 7, true}, // the zone is dropped, the address is checked
		{"fd12::1", 65535, true},
		{"localhost", 8000, false}, // a name never leads to loopback
		{"LOCALHOST.", 8000, false},
		{"203.0.113.9", 80, true},
		{"0.0.0.0", 9000, false},
		{"0", 9000, false},
		{"0x7f000001", 9000, false},
		{"0177.0.0.1", 9000, false},
		{"2130706433", 9000, false},
		{"127.1", 9000, false},
		{"127.0.0.1.", 9000, false},
		{"::127.0.0.1", 9000, false},
		{"64:ff9b::7f00:1", 9000, false},
		{"2002:7f00:1::", 9000, false},
		{"169.254.169.254", 80, false},
		{"224.0.0.1", 9000, false},
		{"", 9000, false},
	} {
		_, err := rs.Check(t.Context(), tc.host, tc.port)
		if (err == nil) != tc.allowed || err != nil && !errors.Is(err, ErrBlocked) {
			t.Errorf("%s:%d: %v, want it allowed: %t", tc.host, tc.port, err, tc.allowed)
		}
	}
	if _, err := Rules(nil).Check(t.Context(), "127.0.0.1", 9000); !errors.Is(err, ErrBlocked) {
		t.Errorf("without rules: %v", err)
	}
}

// TestNamesThatResolveToLoopback: localhost is in the hosts file of every machine; a rule that names an
// address allows it, a rule that names the name does not.
func TestNamesThatResolveToLoopback(t *testing.T) {
	if _, err := rules(t, "localhost:80").Check(t.Context(), "localhost", 80); !errors.Is(err, ErrBlocked) {
		t.Errorf("a name that leads to loopback: %v", err)
	}
	addrs, err := rules(t, "127.0.0.0/8:80", "[::1]:80").Check(t.Context(), "localhost", 80)
	if err != nil || len(addrs) == 0 || !addrs[0].IsLoopback() {
		t.Errorf("%v, %v", addrs, err)
	}
}

func TestBadRulesAreNamed(t *testing.T) {
	for _, s := range []string{"", "host", "host:", "host:0", "host:70000", "host:9-1", "host:x", ":80", "*:80", "a*b:80", "10.0.0.0/99:80", "[::1:80"} {
		if r, err := ParseRule(s); err == nil {
			t.Errorf("%q became %+v", s, r)
		} else if !strings.Contains(err.Error(), s) {
			t.Errorf("%q: %v does not name it", s, err)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"127.0.0.1:1-2", "[::1]:*", "*.a:3", "10.0.0.0/8:4"} {
		f.Add(s, "127.0.0.1", 1)
	}
	f.Fuzz(func(t *testing.T, text, host string, port int) {
		r, err := ParseRule(text)
		if err == nil {
			r.allowsName(canonical(host), port)
			odd(host)
		}
	})
}
