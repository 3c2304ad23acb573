package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThePeersOfTheProjectAreInForm(t *testing.T) {
	peers, err := Load("../../peers")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, k := range []string{"host", "port", "address", "target", "security", "mux", "protocol", "seconds", "block", "streams", "connections", "mode"} {
		values[k] = "x"
	}
	seen := map[string]bool{}
	for _, p := range peers {
		if seen[p.Name] || filepath.Base(p.Dir) != p.Name {
			t.Errorf("%s: its name is taken, or not its folder's", p.Dir)
		}
		seen[p.Name] = true
		var commands []string
		if p.Server != nil {
			commands = append(commands, p.Server.Command, p.Server.Wisp)
		}
		if p.Client != nil {
			commands = append(commands, p.Client.Command, p.Client.Wisp)
		}
		for _, c := range commands {
			if _, err := Fill(c, values); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
		if _, err := os.Stat(filepath.Join(p.Dir, "README.md")); err != nil && p.Name != "muxperf" {
			t.Errorf("%s has no README.md", p.Name)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	good := "name: a\nkind: libp2p\nstacks: [noise+yamux]\nclient: {command: x}\n"
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ text, want string }{
		{"nam: a", "nam"},
		{strings.Replace(good, "name: a", "name: a b", 1), "name"},
		{strings.Replace(good, "libp2p", "ftp", 1), `kind "ftp"`},
		{strings.Replace(good, "noise+yamux", "noise", 1), `stack "noise"`},
		{strings.Replace(good, "client: {command: x}\n", "", 1), "neither server nor client"},
		{good + "result: xml\n", `result "xml"`},
	} {
		if _, err := Parse([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", tc.text, err, tc.want)
		}
	}
}

func TestFill(t *testing.T) {
	v := map[string]string{"port": "1", "host": "h"}
	for in, want := range map[string]string{"x -p {port} {host}": "x -p 1 h", "awk '{ print }'": "awk '{ print }'"} {
		if got, err := Fill(in, v); err != nil || got != want {
			t.Errorf("%q becomes %q, %v", in, got, err)
		}
	}
	if _, err := Fill("x {prot}", v); err == nil || !strings.Contains(err.Error(), "{prot}") {
		t.Errorf("an unknown placeholder: %v", err)
	}
}

func TestGiven(t *testing.T) {
	p, err := Given("server", "mine[plaintext+wisp]=./wispd -p {port}")
	if err != nil || p.Name != "mine" || p.Kind[0] != Wisp || p.Server.Ready != "tcp" || p.Result != "none" || p.Server.Command != "./wispd -p {port}" {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = Given("client", "c=./x {address} {target}")
	if err != nil || p.Kind[0] != Wisp || p.Client == nil {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "x", "x=", "=y", "a b=c"} {
		if _, err := Given("server", bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
