// matrix compare and matrix report: what can be made of results that are there.

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"muxperf/cli"
	"muxperf/matrix/cell"
	"muxperf/matrix/render"
	"muxperf/report"
)

// compare prints the ratio of each cell, and fails past the threshold.
func compare(args []string, stdout io.Writer) error {
	threshold := 0.0
	c := cli.New("matrix compare", "ratios of two results", "matrix compare OLD.json NEW.json [flags]")
	g := c.Group("Flags")
	g.Func(func(s string) error {
		n, err := strconv.ParseFloat(trimPercent(s), 64)
		if err != nil || n <= 0 || n > 100 {
			return fmt.Errorf("want percent, above 0 up to 100")
		}
		threshold = n / 100
		return nil
	}, "threshold", "", "PERCENT", "exit with 7 if a cell is significantly slower by more than that")
	rest, err := c.Parse(args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		return cli.Errorf("matrix compare takes two files: OLD.json NEW.json")
	}
	old, err := load(rest[0])
	if err != nil {
		return err
	}
	now, err := load(rest[1])
	if err != nil {
		return err
	}
	all := cell.Compare(old, now)
	render.Comparison(stdout, all)
	if threshold == 0 {
		return nil
	}
	return judge(all, threshold)
}

// judge fails past the threshold, and where the repetitions are too few to say: silence would pass as proof.
func judge(all []cell.Comparison, threshold float64) error {
	worst, tooFew := cell.Comparison{}, 0
	for _, c := range all {
		if c.Loss() > worst.Loss() {
			worst = c
		}
		if c.Verdict == cell.TooFew {
			tooFew++
		}
	}
	switch name := fmt.Sprintf("%s to %s over %s", worst.Client, worst.Server, worst.Stack); {
	case worst.Verdict == cell.Lost:
		return report.Errorf(report.KindThreshold, "", "%s has no number any more (%s)", name, worst.Note)
	case worst.Loss() > threshold:
		return report.Errorf(report.KindThreshold, "", "%s lost %.1f %%, more than the threshold of %.1f %%", name, 100*worst.Loss(), 100*threshold)
	case tooFew > 0:
		return report.Errorf(report.KindFailed, "measure both with --reps 4 or more", "%d of %d cells have too few repetitions to show any difference", tooFew, len(all))
	}
	return nil
}

func trimPercent(s string) string {
	if n := len(s); n > 0 && s[n-1] == '%' {
		return s[:n-1]
	}
	return s
}

// rerender writes a result in other forms.
func rerender(args []string, stdout io.Writer) error {
	var outputs []string
	c := cli.New("matrix report", "other forms of a result", "matrix report FILE.json --output FILE")
	c.Group("Flags").Texts(&outputs, "output", "", "FILE", "write .json, .md, .csv or .html, by the ending")
	rest, err := c.Parse(args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return cli.Errorf("matrix report takes one file: FILE.json")
	}
	m, err := load(rest[0])
	if err != nil {
		return err
	}
	for _, f := range outputs {
		if _, ok := writers()[filepath.Ext(f)]; !ok {
			return cli.Errorf("--output %s: want a name that ends in .json, .md, .csv or .html", f)
		}
	}
	if len(outputs) == 0 {
		return render.Text(stdout, m)
	}
	return write(m, outputs)
}

func load(name string) (*cell.Matrix, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, cli.Errorf("%v", err)
	}
	defer f.Close()
	m, err := cell.Read(f)
	if err != nil {
		return nil, cli.Errorf("%s: %v", name, err)
	}
	return m, nil
}
