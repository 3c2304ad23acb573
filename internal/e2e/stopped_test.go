//go:build unix

package e2e

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestStoppedClient: the server notices a client that was stopped or killed in mid-run, and says what it has.
func TestStoppedClient(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := startPeer(t, filepath.Join(bin(t), "server"), "-p", "0", "-B", "127.0.0.1", "--json=peer")
			addr := hostPort(t, own.address)
			client := exec.Command(filepath.Join(bin(t), "client"), "-t", "60", "--rcv-timeout", "2", addr)
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Process.Kill(); _ = client.Wait() }()
			time.Sleep(2 * time.Second)
			_ = client.Process.Signal(signal)
			line := own.next(t, "result")
			if got, _ := line["received_bytes"].(float64); got == 0 || line["incomplete"] != true {
				t.Errorf("the server says %v", line)
			}
			if r := measured(t, "-n", "1M", addr); !r.Complete {
				t.Errorf("the next client: %v", r.Error)
			}
		})
	}
}
