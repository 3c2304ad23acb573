// Command lines: what each flag does to the options, and what does not go together.

package main

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"muxperf/cli"
	"muxperf/protocol/control"
)

func TestOptions(t *testing.T) {
	for _, tc := range []struct {
		args string
		got  func(*clientOptions) any
		want any
	}{
		{"host", func(o *clientOptions) any { return o.address.HostPort() }, "host:4001"},
		{"-p 9 host", func(o *clientOptions) any { return o.address.HostPort() }, "host:9"},
		{"-p 9 host:10", func(o *clientOptions) any { return o.address.HostPort() }, "host:10"},
		{"-c host", func(o *clientOptions) any { return o.address.HostPort() }, "host:4001"},
		{"--server-address host:7", func(o *clientOptions) any { return o.address.HostPort() }, "host:7"},
		{"-4 host", func(o *clientOptions) any { return o.address.Network }, "tcp4"},
		{"-6 host", func(o *clientOptions) any { return o.address.Network }, "tcp6"},
		{"-4 -6 host", func(o *clientOptions) any { return o.address.Network }, "tcp"},
		{"-4 unix:/s", func(o *clientOptions) any { return o.address.Network + o.address.HostPort() }, "unix/s"},

		{"host", stackOf, "noise+yamux"},
		{"--security plaintext --mux none host", stackOf, "plaintext+none"},
		{"--transport-security plaintext host", stackOf, "plaintext+yamux"},
		{"--transport tcp host", stackOf, "noise+yamux"},
		{"ws://host/p", stackOf, "plaintext+wisp"},
		{"--security plaintext --mux wisp ws://host/p", stackOf, "plaintext+wisp"},
		{"--no-control host", stackOf, "plaintext+none"},
		{"--no-control --security noise host", stackOf, "noise+yamux"},
		{"--no-control --mux wisp host", stackOf, "noise+wisp"},

		{"host", func(o *clientOptions) any { return o.time }, 10 * time.Second},
		{"-t 0.5 host", func(o *clientOptions) any { return o.time }, 500 * time.Millisecond},
		{"-n 1K host", timeAndBytes, [2]any{time.Duration(0), uint64(1024)}},
		{"-t 3 -n 1K host", timeAndBytes, [2]any{3 * time.Second, uint64(1024)}},
		{"-k 3 -l 1000 host", timeAndBytes, [2]any{time.Duration(0), uint64(3000)}},
		{"--upload-bytes 5 --download-bytes 0 host", timeAndBytes, [2]any{time.Duration(0), uint64(5)}},
		{"--upload-bytes 0 --download-bytes 6 host", timeAndBytes, [2]any{time.Duration(0), uint64(6)}},
		{"--test hold host", func(o *clientOptions) any { return o.time }, time.Duration(0)},
		{"--test hold -t 2 host", func(o *clientOptions) any { return o.time }, 2 * time.Second},

		{"host", directionOf, control.Upload},
		{"-R host", directionOf, control.Download},
		{"--bidir host", directionOf, control.Both},
		{"--upload-bytes 5 host", directionOf, control.Upload},
		{"--download-bytes 5 host", directionOf, control.Download},

		{"-b 10M host", func(o *clientOptions) any { return o.params().Rate }, 10e6},
		{"--streams 4 host", func(o *clientOptions) any { return o.params().Streams }, 4},
		{"--connections 20000 host", func(o *clientOptions) any { return o.params().Connections }, 20000},
		{"--test hold --connections 2000000 host", func(o *clientOptions) any { return o.connections }, 2_000_000},
		{"--rate 1.5K host", func(o *clientOptions) any { return o.transactions }, 1500.0},
		{"--request 10 --response 1M host", func(o *clientOptions) any { return [2]uint64{o.request, o.response} }, [2]uint64{10, 1 << 20}},
		{"--label a=1 --label b=x=y host", func(o *clientOptions) any { return o.labelMap() }, map[string]string{"a": "1", "b": "x=y"}},
		{"host", func(o *clientOptions) any { return len(o.labelMap()) }, 0},
		{"--nagle -w 64K -T title --verify host", func(o *clientOptions) any {
			p := o.params()
			return []any{p.NoDelayOff, p.SocketBuf, p.Title, p.Verify}
		}, []any{true, 65536, "title", true}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			o, err := parsed(strings.Fields(tc.args)...)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.got(o); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v (%T), want %v (%T)", got, got, tc.want, tc.want)
			}
		})
	}
}

func stackOf(o *clientOptions) any      { return o.security + "+" + o.mux }
func timeAndBytes(o *clientOptions) any { return [2]any{o.time, o.bytes} }
func directionOf(o *clientOptions) any  { return o.direction() }

// TestOptionsRefused: each mistake is a usage error of one line, which names what was given.
func TestOptionsRefused(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"", "no address"},
		{"one two", "more than one address: one two"},
		{"-c one two", "more than one address: one two"},
		{"host:0", `port "0"`},
		{"host:70000", `port "70000"`},
		{"wss://host/", "wss"},
		{"unix:", "unix:"},
		{"/ip4/1.2.3.4/udp/1/quic-v1", "quic"},
		{"-p 0 host", "--port 0"},
		{"-p 65536 host", "--port 65536"},
		{"--tine 3 host", "did you mean --time?"},
		{"-t soon host", "--time soon: want seconds"},
		{"-t -1 host", "--time -1"},
		{"-n lots host", "--bytes lots: want bytes"},
		{"-n 1.5 host", "--bytes 1.5: want bytes"},
		{"-n -1 host", "--bytes -1"},
		{"-l 0 host", "-l 0: want 1 to 1048576 bytes"},
		{"-l 2M host", "-l 2097152: want 1 to 1048576 bytes"},
		{"-k 8000000000000000000 -l 1M host", "more than can be counted"},
		{"-k 4611686018427387904 -l 4 host", "more than can be counted"},
		{"-P 0 host", "--parallel 0"},
		{"-P 20001 host", "--parallel 20001"},
		{"--connections 20001 host", "--connections 20001: want at most 20000, except with --test hold"},
		{"--connections 2000001 --test hold host", "--connections 2000001"},
		{"-R --bidir host", "--reverse and --bidir exclude each other"},
		{"--download-bytes 1 --bidir host", "--reverse and --bidir exclude each other"},
		{"--upload-bytes 1 --download-bytes 1 host", "one of them at a time"},
		{"--transport quic host", "only tcp is supported"},
		{"-b fast host", "--bitrate fast: want bits per second"},
		{"--rate 0 host", "want transactions per second"},
		{"--rate x host", "want transactions per second"},
		{"--outstanding 0 host", "--outstanding 0"},
		{"--request 0 host", "--request and --response: want 1 to"},
		{"--response 0 host", "--request and --response: want 1 to"},
		{"--response 100G host", "--request and --response: want 1 to"},
		{"--test ping host", "want one of flood, rr, crr, open, hold"},
		{"--engine io_uring host", "want one of auto, epoll, net"},
		{"--security tls host", "want one of noise, plaintext"},
		{"--mux mplex host", "want one of yamux, wisp, none"},
		{"--protocol chat host", "want one of auto"},
		{"--target 127.0.0.1:9 host", "--target needs a Wisp server"},
		{"--security noise ws://host/", "ws:// has no security layer"}, // it must not become plaintext unsaid
		{"--label x host", "--label x: want KEY=VALUE"},
		{"--label =x host", "--label =x: want KEY=VALUE"},
		{"--security plaintext --mux none /ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN", "proves none"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			_, err := parsed(strings.Fields(tc.args)...)
			var usage *cli.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v (%T), want one line with %q", err, err, tc.want)
			}
		})
	}
}

func TestWispCredentials(t *testing.T) {
	for _, tc := range []struct{ text, user, password, want string }{
		{"alice:secret\n", "alice", "secret", ""},
		{"  alice:se:cret  ", "alice", "se:cret", ""},
		{":", "", "", ""},
		{"alice", "", "", "want a line of USER:PASSWORD"},
		{"", "", "", "want a line of USER:PASSWORD"},
		{strings.Repeat("a", 256) + ":x", "", "", "want a line of USER:PASSWORD"},
	} {
		o, err := parsed("--wisp-password-file", file(t, tc.text), "--wisp-version", "2", "ws://host:1/p/")
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := o.wisp()
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), tc.text) && tc.text != "" {
				t.Errorf("%q: %v, want %q, and nothing of the secret", tc.text, err, tc.want)
			}
			continue
		}
		if err != nil || cfg.User != tc.user || cfg.Password != tc.password || cfg.Version != 2 || cfg.Host != "host:1" || cfg.Path != "/p/" {
			t.Errorf("%q: %+v, %v", tc.text, cfg, err)
		}
	}
}

func TestToken(t *testing.T) {
	o, err := parsed("--token-file", file(t, " secret \n"), "host")
	if err != nil {
		t.Fatal(err)
	}
	if token, err := o.token(); err != nil || string(token) != "secret" {
		t.Errorf("%q, %v", token, err)
	}
	if token, err := defaults().token(); err != nil || token != nil {
		t.Errorf("without a file: %q, %v", token, err)
	}
}

// TestLabelsAreCopied: the result's map is its own.
func TestLabelsAreCopied(t *testing.T) {
	o, err := parsed("--label", "a=1", "--label", "a=2", "host")
	if err != nil {
		t.Fatal(err)
	}
	first := o.labelMap()
	first["b"] = "mine"
	if second := o.labelMap(); !maps.Equal(second, map[string]string{"a": "2"}) {
		t.Errorf("the last label of a name counts: %v", second)
	}
}
