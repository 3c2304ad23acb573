// The client as a whole, in this process: what it prints and how it exits, with writers of the test's.

package main

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"

	"muxperf/testee"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if testee.MaybeWorker() { // the hold test starts this program again
		return
	}
	goleak.VerifyTestMain(m)
}

// says runs the client with a command line.
func says(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return out.String(), errs.String(), code
}

// parsed is a command line after parsing and checking.
func parsed(args ...string) (*clientOptions, error) {
	o := defaults()
	rest, err := o.table().Parse(args, &bytes.Buffer{})
	if err != nil {
		return o, err
	}
	return o, o.check(rest)
}

// serveTestee serves a testee until the test ends, and returns its address.
func serveTestee(t *testing.T, spec string) string {
	t.Helper()
	s, err := testee.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	te, err := testee.Listen(t.Context(), s, testee.Config{Engine: testee.EngineNet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := te.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return te.Addr().String()
}

// file writes a file for the test.
func file(t *testing.T, text string) string {
	t.Helper()
	name := t.TempDir() + "/file"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
