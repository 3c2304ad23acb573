// Package programs builds the commands for tests that run them as users do.
package programs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
)

// Build builds client and server into a new folder, which the caller removes.
func Build() (dir string, err error) {
	dir, err = os.MkdirTemp("", "muxperf-test-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", "muxperf/client", "muxperf/server").CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("building the commands: %w: %s", err, bytes.TrimSpace(out))
	}
	return dir, nil
}
