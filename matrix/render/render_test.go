package render

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muxperf/matrix/cell"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is a matrix with a cell of each kind.
func sample() *cell.Matrix {
	m := &cell.Matrix{SchemaVersion: cell.SchemaVersion, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"matrix", "-t", "1"},
		Environment: map[string]string{"cpu": "A Processor", "cpus": "2", "kernel": "Linux 6.1"}, Seed: 7, Seconds: 1, Repetitions: 3, RawTCP: 30e9,
		Peers: []cell.Peer{{Name: "ours", Version: "ours 1"}, {Name: "theirs", Version: "theirs 2"}, {Name: "absent", Unavailable: "tool not found on this machine"}}}
	add := func(k cell.Key, state cell.State, reason string, rates ...float64) {
		c := &cell.Cell{Key: k, State: state, Reason: reason}
		for i, g := range rates {
			c.Reps = append(c.Reps, cell.Rep{State: cell.OK, Protocol: "/perf/1.0.0", Sent: uint64(g * 1e9 / 8), Received: uint64(g * 1e9 / 8), Seconds: 1,
				Goodput: g * 1e9, MeasuredAt: "receiver", ClientCPU: 0.4, ServerCPU: 0.5,
				Intervals: []cell.Interval{{End: 0.5, Bytes: uint64(g * 1e9 / 17)}, {End: 1, Bytes: uint64(g*1e9/15) + uint64(i)}}})
		}
		if state == "" {
			c.Summarise()
		}
		m.Cells = append(m.Cells, c)
	}
	k := func(c, s, stack string) cell.Key {
		return cell.Key{Client: c, Server: s, Stack: stack, Streams: 1, Connections: 1}
	}
	add(k("ours", "ours", "noise+yamux"), "", "", 8, 8.1, 8.2)
	again := k("ours", "ours", "noise+yamux")
	again.Copy = 1
	add(again, "", "", 8.05, 8.1, 8.3)
	add(k("ours", "theirs", "noise+yamux"), "", "", 5, 7, 9)
	add(k("theirs", "ours", "noise+yamux"), cell.DNF, "theirs's client did not finish within 31s")
	add(k("theirs", "theirs", "noise+yamux"), cell.Unsupported, "it cannot")
	w := k("ours", "absent", "plaintext+wisp")
	w.Mode, w.Streams, w.Connections = "flood", 10, 5
	add(w, cell.Unavailable, "absent: tool not found on this machine")
	m.MeasureNoise()
	return m
}

func TestGolden(t *testing.T) {
	for name, render := range map[string]func(*bytes.Buffer) error{
		"matrix.txt": func(b *bytes.Buffer) error { return Text(b, sample()) },
		"matrix.md":  func(b *bytes.Buffer) error { return Markdown(b, sample()) },
		"matrix.csv": func(b *bytes.Buffer) error { return CSV(b, sample()) },
	} {
		var b bytes.Buffer
		if err := render(&b); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if *update {
			os.MkdirAll("testdata", 0o755)
			os.WriteFile(file, b.Bytes(), 0o644)
		}
		want, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s differs (go test -update writes it anew): %v\n%s", name, err, b.String())
		}
	}
}

// TestReportInABrowser opens the report in Chromium and looks for what must not be: a request to anywhere, an
// error on the console. What must be is a picture of it.
func TestReportInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("chromium is not on this machine; .ci/install installs it")
		}
		t.Skip("chromium is not on this machine")
	}
	var page bytes.Buffer
	if err := HTML(&page, sample()); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.URL.Hostname()
		if strings.HasSuffix(host, ".google.com") || strings.HasSuffix(host, ".googleapis.com") || strings.HasSuffix(host, ".gvt1.com") {
			return // Chromium's own services, which it asks for with any page
		}
		requests.Add(1)
		t.Errorf("the page asked for %s", r.URL)
	}))
	defer proxy.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		picture := filepath.Join(dir, scheme+".png")
		args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--disable-default-apps", "--enable-logging=stderr", "--v=0",
			"--user-data-dir=" + filepath.Join(dir, scheme), "--proxy-server=" + proxy.Listener.Addr().(*net.TCPAddr).String(), "--proxy-bypass-list=<-loopback>",
			"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--window-size=1200,1400", "--screenshot=" + picture}
		if scheme == "dark" {
			args = append(args, "--blink-settings=preferredColorScheme=0", "--force-dark-mode")
		}
		out, err := exec.Command(chromium, append(args, "file://"+file)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "CONSOLE") {
				t.Errorf("%s: %s", scheme, line)
			}
		}
		if st, err := os.Stat(picture); err != nil || st.Size() < 20_000 {
			t.Errorf("%s: no picture: %v", scheme, err)
		} else if keep := os.Getenv("KEEP_PICTURES"); keep != "" {
			b, _ := os.ReadFile(picture)
			os.WriteFile(filepath.Join(keep, "report-"+scheme+".png"), b, 0o644)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests left the page", n)
	}
	for _, want := range []string{"8.10", "DNF", "did not take part: tool not found", "prefers-color-scheme: dark", fmt.Sprintf(`"seed":%d`, 7)} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, never := range []string{"http://", "https://", "src=", "@import", "url("} {
		if strings.Contains(page.String(), never) {
			t.Errorf("the report holds %q", never)
		}
	}
}
