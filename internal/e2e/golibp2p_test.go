package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGoLibp2p runs our commands against go-libp2p: both directions, both security layers, both protocols,
// and compares the byte counts of both ends.
func TestGoLibp2p(t *testing.T) {
	ours := bin(t)
	peer := filepath.Join(t.TempDir(), "peer")
	build := exec.Command("go", "build", "-o", peer, ".")
	build.Dir = "../../peers/go-libp2p"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the peer: %v\n%s", err, out)
	}
	const bytes = 20_000_001
	for _, security := range []string{"noise", "plaintext"} {
		t.Run(security, func(t *testing.T) {
			theirs := startPeer(t, peer, "server", "--security", security)
			own := startPeer(t, filepath.Join(ours, "server"), "-p", "0", "-B", "127.0.0.1", "--json=peer")
			for _, protocol := range []string{"/perf/0.1.0", "/perf/1.0.0"} {
				client := []string{"--security", security, "--protocol", protocol, "--json=peer", "-n", fmt.Sprint(bytes)}
				agree(t, "ours to theirs, "+protocol, bytes, 0,
					runPeer(t, filepath.Join(ours, "client"), append(client, theirs.address)...), theirs.next(t, "result"))
				agree(t, "theirs to ours, "+protocol, bytes, 0,
					runPeer(t, peer, "client", "--connect", own.address, "--security", security, "--protocol", protocol, "--bytes", fmt.Sprint(bytes)), own.next(t, "result"))
			}
			down := []string{"--security", security, "--protocol", "/perf/1.0.0", "--json=peer", "-R", "-n", fmt.Sprint(bytes)}
			agree(t, "download from theirs", 0, bytes, runPeer(t, filepath.Join(ours, "client"), append(down, theirs.address)...), theirs.next(t, "result"))
			agree(t, "download from ours", 0, bytes, runPeer(t, peer, "client", "--connect", own.address, "--security", security, "--download", "--bytes", fmt.Sprint(bytes)), own.next(t, "result"))
		})
	}
}

// agree compares what both ends counted.
func agree(t *testing.T, name string, up, down float64, client, server map[string]any) {
	t.Helper()
	if client["sent_bytes"] != up || server["received_bytes"] != up || client["received_bytes"] != down || server["sent_bytes"] != down {
		t.Errorf("%s: the client says %v, the server %v; %v up and %v down were asked for", name, client, server, up, down)
	}
}
