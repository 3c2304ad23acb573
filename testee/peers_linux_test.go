// A place where one may not write. Root may write anywhere, so for the time of the test the thread acts on files
// as nobody.

package testee

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNoPermission(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if root := os.Geteuid(); root == 0 {
		const nobody = 65534
		runtime.LockOSThread()
		if _, err := unix.SetfsuidRetUid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := unix.SetfsuidRetUid(root); err == nil {
				runtime.UnlockOSThread() // else the thread ends with this goroutine
			}
		}()
	}
	for _, engine := range engines() { // without subtests, which have goroutines of their own
		s, err := ParseSpec("unix:" + filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		te, err := Listen(t.Context(), s, Config{Engine: engine})
		if err == nil {
			te.listener.Close()
			t.Fatalf("%s: a testee listens where it may not", engine)
		}
		if !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line about the permission", engine, err)
		}
	}
}
