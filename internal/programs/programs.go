// Package programs builds the commands for tests that run them as users do.
package programs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds client and server into a new folder, which the caller removes.
func Build() (dir string, err error) { return BuildWith() }

// BuildWith is Build with further arguments for go build.
func BuildWith(args ...string) (dir string, err error) {
	if err := noteSources(); err != nil {
		return "", fmt.Errorf("looking at the sources: %w", err)
	}
	dir, err = os.MkdirTemp("", "muxperf-test-")
	if err != nil {
		return "", err
	}
	args = append(append([]string{"build", "-o", dir + "/"}, args...), "muxperf/client", "muxperf/server")
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("building the commands: %w: %s", err, bytes.TrimSpace(out))
	}
	return dir, nil
}

// noteSources looks at every source file, for go test to see that it was looked at: it repeats an old result, "(cached)",
// as long as the packages that a test imports and the files that it looked at are as they were, and a test cannot
// import a command.
func noteSources() error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	return filepath.WalkDir(filepath.Dir(strings.TrimSpace(string(mod))), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "peers" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			_, err = os.Stat(path)
		}
		return err
	})
}
