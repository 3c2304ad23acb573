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
	if err != nil || p.Name != "mine" || p.Kind[0] != Wisp || p.Server.Ready != "tcp" || p.ServerResult() != "none" || p.ClientResult() != "json" || p.Server.Command != "./wispd -p {port}" {
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

// TestMerge: a server and a client of one name, given on the command line, are one peer.
func TestMerge(t *testing.T) {
	given := func(role, text string) *Peer {
		p, err := Given(role, text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := given("server", "mine[plaintext+wisp]=./wispd {port}")
	if !p.Merge(given("client", "mine=./wisp {address} {target}")) || p.Client == nil || p.ServerResult() != "none" || p.ClientResult() != "json" {
		t.Errorf("both roles: %+v", p)
	}
	if p.Merge(given("client", "mine=./other {target}")) {
		t.Error("a second client was taken")
	}
	if given("server", "mine=./libp2pd {port}").Merge(given("client", "mine=./wisp {target}")) {
		t.Error("two kinds became one peer")
	}
	loaded, err := Parse([]byte("name: mine\nkind: wisp\nstacks: [plaintext+wisp]\nserver: {command: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Merge(given("client", "mine=./wisp {target}")) {
		t.Error("a peer of the folder was changed")
	}
}

// FuzzPeer: files and command lines are written by people; nothing of them may end the program.
func FuzzPeer(f *testing.F) {
	f.Add("name: x\nkind: [libp2p]\nstacks: [noise+yamux]\nserver: {command: 'x {port}'}\n")
	f.Add("mine[plaintext+wisp]=./wispd -p {port} {")
	f.Add("{a}{{}}")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Parse([]byte(text)); err == nil && (p.Name == "" || len(p.Kind) == 0) {
			t.Errorf("%q became %+v", text, p)
		}
		if p, err := Given("server", text); err == nil && p.Server == nil {
			t.Errorf("%q became a server without a command", text)
		}
		if out, err := Fill(text, map[string]string{"port": "1"}); err == nil && strings.Contains(out, "{port}") {
			t.Errorf("%q became %q", text, out)
		}
	})
}
