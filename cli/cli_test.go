package cli

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

type config struct {
	time    time.Duration
	block   uint64
	rate    float64
	streams int
	verify  bool
	json    string
	mux     string
	labels  []string
}

func table() (*Command, *config) {
	v := &config{time: 10 * time.Second, block: 128 << 10, streams: 1, mux: "yamux"}
	c := New("client", "floods a stream", "client [flags] ADDRESS")
	g := c.Group("Test")
	g.Duration(&v.time, "time", "t", "SECONDS", "how long to send")
	g.Size(&v.block, "length", "l", "BYTES", "bytes of one write")
	g.Rate(&v.rate, "bitrate", "b", "BITS/S", "target rate, all streams together")
	g.Count(&v.streams, "parallel", "P", "N", 1, 10000, "streams per connection")
	g = c.Group("Stack")
	g.Choice(&v.mux, "mux", "", "NAME", []string{"yamux", "wisp", "none"}, "the muxer")
	g = c.Group("Output")
	g.Switch(&v.verify, "verify", "", "check every byte")
	g.OptionalChoice(&v.json, "json", "J", "FORM", "native", []string{"native", "iperf3"}, "print JSON")
	g.Texts(&v.labels, "label", "", "K=V", "a label")
	c.Alias("duration", "time")
	c.Examples = []Example{{"client host", "the default"}}
	c.Notes = []string{".A note that begins with a dot - and a 'quote'."}
	return c, v
}

func TestParse(t *testing.T) {
	c, v := table()
	rest, err := c.Parse([]string{"-t", "2.5", "-l64K", "-b", "1.5G", "-P", "8", "--mux=none", "--verify", "-J", "--label", "a=b", "--label", "c=d", "host"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v.time != 2500*time.Millisecond || v.block != 64<<10 || v.rate != 1.5e9 || v.streams != 8 || v.mux != "none" ||
		!v.verify || v.json != "native" || len(v.labels) != 2 || len(rest) != 1 || rest[0] != "host" || !c.Changed("time") {
		t.Errorf("%+v, %v", v, rest)
	}
	c, v = table()
	if _, err := c.Parse([]string{"--duration", "3s", "--json=iperf3"}, nil); err != nil || v.time != 3*time.Second || v.json != "iperf3" {
		t.Errorf("alias and optional argument: %+v, %v", v, err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--tine 3", "did you mean --time?"},
		{"-t soon", "--time soon: want seconds"},
		{"-t -1", "want seconds"},
		{"-l 1.5", "want bytes"},
		{"-l 64Q", "want bytes"},
		{"-b fast", "want bits per second"},
		{"-P 0", "want a whole number from 1 to 10000"},
		{"--mux mplex", "want one of yamux, wisp, none"},
		{"--json=xml", "want one of native, iperf3"},
		{"-Y", "there is no flag -Y"},
		{"-t", "needs an argument"},
		{"--completion tcsh", "want bash, zsh or fish"},
	} {
		c, _ := table()
		_, err := c.Parse(strings.Fields(tc.args), &bytes.Buffer{})
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", tc.args, err, tc.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "1": 1, "64K": 65536, "64KiB": 65536, "64kb": 65536, "1.5M": 1572864, "2G": 2 << 30, "1T": 1 << 40} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("size %s is %d, %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]float64{"1000": 1000, "1K": 1000, "10M": 1e7, "2.5G": 2.5e9, "10Mbit/s": 1e7, "1gbps": 1e9} {
		if got, err := ParseRate(in); err != nil || got != want {
			t.Errorf("rate %s is %v, %v; want %v", in, got, err, want)
		}
	}
	for _, n := range []uint64{0, 1, 1000, 1024, 1 << 20, 3 << 30} {
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Errorf("%d becomes %s and comes back as %d, %v", n, FormatSize(n), got, err)
		}
	}
	for _, bad := range []string{"", "-1", "NaN", "inf", "1e400", "K", "1KK", "9999999T"} {
		if _, err := ParseSize(bad); err == nil {
			t.Errorf("size %q was read", bad)
		}
	}
}

func TestHelpFitsTheEye(t *testing.T) {
	c, _ := table()
	var out bytes.Buffer
	if _, err := c.Parse([]string{"--help"}, &out); !errors.Is(err, ErrDone) {
		t.Fatal(err)
	}
	for _, want := range []string{"Usage:\n  client [flags] ADDRESS", "-t, --time SECONDS", "[10]", "[128K]", "yamux, wisp, none", "-J, --json[=FORM]", "(repeatable)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > helpWidth+1 {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	if strings.Contains(out.String(), "duration") {
		t.Error("an alias is shown")
	}
}

func TestManAndCompletions(t *testing.T) {
	c, _ := table()
	man := c.Man()
	for _, want := range []string{".TH CLIENT 1", `\fB\-t\fR, \fB\-\-time SECONDS\fR`, `\&.A note`} {
		if !strings.Contains(man, want) {
			t.Errorf("the man page lacks %q", want)
		}
	}
	for shell, want := range map[string]string{
		"bash": "--mux) COMPREPLY=($(compgen -W 'yamux wisp none'",
		"zsh":  "'(-t --time)'{-t,--time}'[how long to send]:SECONDS:'",
		"fish": "complete -c client -l mux -x -a 'yamux wisp none'",
	} {
		script, err := c.Completion(shell)
		if err != nil || !strings.Contains(script, want) {
			t.Errorf("%s: %v, want %q in\n%s", shell, err, want, script)
		}
		if path, err := exec.LookPath(shell); err == nil {
			if out, err := exec.Command(path, "-n", "-c", script).CombinedOutput(); err != nil {
				t.Errorf("%s cannot read its completions: %s", shell, out)
			}
		}
	}
}
