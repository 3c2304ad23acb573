// Tests of the address forms: what is read, what is refused and why, and that what is printed can
// be read again.

package identity

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	const text = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
	peer := FromSeed(ZeroSeed()).ID()
	for in, want := range map[string]Address{
		"example.com":                       {Network: "tcp", Host: "example.com", Port: 4001},
		"example.com:5":                     {Network: "tcp", Host: "example.com", Port: 5},
		"127.0.0.1":                         {Network: "tcp", Host: "127.0.0.1", Port: 4001},
		"127.0.0.1:65535":                   {Network: "tcp", Host: "127.0.0.1", Port: 65535},
		"::1":                               {Network: "tcp", Host: "::1", Port: 4001},
		"[::1]":                             {Network: "tcp", Host: "::1", Port: 4001},
		"[fe80::1%eth0]:7":                  {Network: "tcp", Host: "fe80::1%eth0", Port: 7},
		"/ip4/1.2.3.4/tcp/5":                {Network: "tcp4", Host: "1.2.3.4", Port: 5},
		"/ip6/::1/tcp/5":                    {Network: "tcp6", Host: "::1", Port: 5},
		"/ip6zone/eth0/ip6/fe80::1/tcp/5":   {Network: "tcp6", Host: "fe80::1%eth0", Port: 5},
		"/dns/a.b/tcp/5/p2p/" + text:        {Network: "tcp", Host: "a.b", Port: 5, Peer: peer},
		"/dns4/a.b/tcp/5/ipfs/" + text:      {Network: "tcp4", Host: "a.b", Port: 5, Peer: peer},
		"/dns6/a.b/tcp/5":                   {Network: "tcp6", Host: "a.b", Port: 5},
		"/ip4/1.2.3.4/tcp/5/ws":             {Network: "tcp4", Host: "1.2.3.4", Port: 5, Scheme: "ws", URLPath: "/"},
		"/ip4/1.2.3.4/tcp/5/ws/p2p/" + text: {Network: "tcp4", Host: "1.2.3.4", Port: 5, Scheme: "ws", URLPath: "/", Peer: peer},
		"unix:/run/x.sock":                  {Network: "unix", Path: "/run/x.sock"},
		"unix:///run/x.sock":                {Network: "unix", Path: "/run/x.sock"},
		"unix:x.sock":                       {Network: "unix", Path: "x.sock"},
		"unix:@abstract":                    {Network: "unix", Path: "@abstract"},
		"/unix/run/x.sock":                  {Network: "unix", Path: "/run/x.sock"},
		"/unix/run/x.sock/p2p/" + text:      {Network: "unix", Path: "/run/x.sock", Peer: peer},
		"/unix/run/p2p/x.sock":              {Network: "unix", Path: "/run/p2p/x.sock"},
		"ws://a.b:5/c/d/?e=f":               {Network: "tcp", Host: "a.b", Port: 5, Scheme: "ws", URLPath: "/c/d/?e=f"},
		"ws://a.b":                          {Network: "tcp", Host: "a.b", Port: 80, Scheme: "ws", URLPath: "/"},
		"ws://[::1]:5/":                     {Network: "tcp", Host: "::1", Port: 5, Scheme: "ws", URLPath: "/"},
	} {
		got, err := ParseAddress(in, 4001)
		if err != nil || got != want {
			t.Errorf("%s became %+v, %v; want %+v", in, got, err, want)
			continue
		}
		if again, err := ParseAddress(got.String(), 1); err != nil || again != got {
			t.Errorf("%s is printed as %s, which becomes %+v, %v", in, got, again, err)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "empty",
		"a b":                               "space",
		"a\n":                               "control",
		":4001":                             "host is missing",
		"a:":                                "port",
		"a:0":                               "1 to 65535",
		"a:65536":                           "1 to 65535",
		"a:-1":                              "1 to 65535",
		"a:http":                            "1 to 65535",
		"1:2:3:4001":                        "[::1]:4001",
		"[::1":                              "[::1]:4001",
		"::1]":                              "[::1]:4001",
		"a@b:5":                             "not a host name",
		"a/b:5":                             "not a host name",
		"wss://a/":                          "TLS",
		"http://a/":                         "not spoken here",
		"quic://a":                          "not spoken here",
		"ws://":                             "host is missing",
		"ws://a:0/":                         "1 to 65535",
		"ws://a:/":                          "1 to 65535",
		"ws://u:p@a/":                       "user",
		"ws://a/#x":                         "fragment",
		"ws://[::1/":                        "URL",
		"/unix/":                            "path is missing",
		"unix:":                             "path is missing",
		"unix:/" + strings.Repeat("x", 107): "107",
		"/ip4/1.2.3.4":                      "/tcp/PORT",
		"/ip4/1.2.3.4/udp/5":                "/udp is not spoken",
		"/ip4/1.2.3.4/udp/5/quic-v1":        "/udp is not spoken",
		"/ip4/1.2.3.4/tcp/0":                "1 to 65535",
		"/ip4/1.2.3.4/tcp/70000":            "1 to 65535",
		"/ip4/::1/tcp/5":                    "not an address for tcp4",
		"/ip6/1.2.3.4/tcp/5":                "not an address for tcp6",
		"/ip4/a.b/tcp/5":                    "does not fit",
		"/dns/1.2.3.4/tcp/5":                "does not fit",
		"/ip6/fe80::1%a/tcp/5":              "does not fit",
		"/ip6zone/a/ip4/1.2.3.4/tcp/5":      "/ip6/",
		"/ip4/1.2.3.4/tcp/5/wss":            "/wss is not understood",
		"/ip4/1.2.3.4/tcp/5/quic":           "/quic is not understood",
		"/ip4/1.2.3.4/tcp/5/p2p":            "not understood",
		"/ip4/1.2.3.4/tcp/5/p2p/x":          "peer id",
		"/dnsaddr/a.b":                      "not known",
		"/":                                 "not known",
	} {
		got, err := ParseAddress(in, 4001)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q became %+v, %v; want an error with %q", in, got, err, want)
		}
	}
	if _, err := ParseAddress("a", 0); err == nil {
		t.Error("the default port 0 was accepted")
	}
}

func TestMultiaddr(t *testing.T) {
	id := FromSeed(ZeroSeed()).ID()
	for in, want := range map[string]string{
		"1.2.3.4:5":        "/ip4/1.2.3.4/tcp/5",
		"[::1]:5":          "/ip6/::1/tcp/5",
		"[fe80::1%lo]:5":   "/ip6zone/lo/ip6/fe80::1/tcp/5",
		"a.b:5":            "/dns/a.b/tcp/5",
		"/dns4/a.b/tcp/5":  "/dns4/a.b/tcp/5",
		"unix:/run/x.sock": "/unix/run/x.sock",
		"ws://a.b:5/c":     "/dns/a.b/tcp/5/ws",
	} {
		a, err := ParseAddress(in, 1)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := a.Multiaddr(""); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
		if got := a.Multiaddr(id); got != want+"/p2p/"+id.String() {
			t.Errorf("%s with its id is %s", in, got)
		}
	}
	a, _ := ParseAddress("[::1]:5", 1)
	if a.HostPort() != "[::1]:5" {
		t.Errorf("HostPort is %s", a.HostPort())
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"a.b:5", "[fe80::1%x]:7", "/ip4/1.2.3.4/tcp/5/ws", "unix:/x", "ws://a:5/b?c",
		"/dns/a/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN", "/unix/x/p2p/y", "ws://[fe80::1%25x]:1/%2f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s, 4001)
		if err != nil {
			return
		}
		if again, err := ParseAddress(a.String(), 1); err != nil || again != a {
			t.Fatalf("%q is %+v, printed as %q, which is %+v, %v", s, a, a, again, err)
		}
	})
}
