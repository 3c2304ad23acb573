// Help for a terminal of 80 columns or more.

package cli

import (
	"strings"
)

const (
	helpWidth  = 96
	helpColumn = 34 // where the texts begin
)

// Help is what --help prints.
func (c *Command) Help() string {
	var b strings.Builder
	b.WriteString(c.Name + ": " + c.Summary + "\n\nUsage:\n  " + c.Usage + "\n")
	for _, g := range c.groups {
		if len(g.flags) == 0 {
			continue
		}
		b.WriteString("\n" + g.title + ":\n")
		for _, f := range g.flags {
			f.writeHelp(&b)
		}
	}
	if len(c.Examples) > 0 {
		b.WriteString("\nExamples:\n")
		for _, e := range c.Examples {
			b.WriteString("  " + e.Command + "\n" + wrap(e.Does, "      ", helpWidth) + "\n")
		}
	}
	for _, n := range c.Notes {
		b.WriteString("\n" + wrap(n, "", helpWidth) + "\n")
	}
	return b.String()
}

// writeHelp writes one flag: its names on the left, its text on the right, or below where the names are
// long.
func (f *Flag) writeHelp(b *strings.Builder) {
	left := "      "
	if f.Short != "" {
		left = "  -" + f.Short + ", "
	}
	left += f.long()
	text := wrap(f.text(), strings.Repeat(" ", helpColumn), helpWidth)
	if len(left) <= helpColumn-2 {
		b.WriteString(left + text[len(left):] + "\n")
		return
	}
	b.WriteString(left + "\n" + text + "\n")
}

// wrap breaks text into lines of at most width columns, each indented.
func wrap(text, indent string, width int) string {
	var lines []string
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
