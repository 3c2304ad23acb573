// Package cli makes flags, help, man pages and shell completions from one table, so that none of them
// can say something else than another. Parsing is spf13/pflag's.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A Command is one program's table of flags, in groups.
type Command struct {
	Name     string   // the program
	Summary  string   // one line
	Usage    string   // "client [flags] ADDRESS"
	Notes    []string // paragraphs after the flags
	Examples []Example
	groups   []*Group
	set      *pflag.FlagSet
}

// An Example is a command line and what it is for.
type Example struct{ Command, Does string }

// A Group is a titled part of the table.
type Group struct {
	title   string
	flags   []*Flag
	command *Command
}

// A Flag is one line of the table.
type Flag struct {
	Name, Short string
	Arg         string // the argument's name and unit, such as "SECONDS"; "" for a switch
	Help        string
	Default     string // as shown; "" shows none
	Choices     []string
	Optional    string // what the flag alone means, where the argument may be left out
	value       *value
}

// UsageError is a command line that makes no sense: one line, for exit code 2.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// Errorf makes a UsageError.
func Errorf(format string, a ...any) error { return &UsageError{fmt.Sprintf(format, a...)} }

// ErrDone is returned by Parse after it has printed what was asked for (help, man page, completion).
var ErrDone = errors.New("printed")

// New makes an empty table.
func New(name, summary, usage string) *Command {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SortFlags = false
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	return &Command{Name: name, Summary: summary, Usage: usage, set: set}
}

// Group starts a new part of the table.
func (c *Command) Group(title string) *Group {
	g := &Group{title: title, command: c}
	c.groups = append(c.groups, g)
	return g
}

// add registers a flag with its value.
func (g *Group) add(v *value, f Flag) *Flag {
	f.value = v
	p := g.command.set.VarPF(v, f.Name, f.Short, f.Help)
	switch {
	case f.Optional != "":
		p.NoOptDefVal = f.Optional
	case f.Arg == "":
		p.NoOptDefVal = "true"
	}
	added := &f
	g.flags = append(g.flags, added)
	return added
}

// OnSet has f called when the flag is given.
func (f *Flag) OnSet(given func()) { f.value.onSet = given }

// Hide leaves a flag out of help, man page and completions.
func (g *Group) Hide(f *Flag) {
	g.command.set.Lookup(f.Name).Hidden = true
	g.flags = slices.DeleteFunc(g.flags, func(x *Flag) bool { return x == f })
}

// Alias accepts another long name for a flag of the table, without showing it.
func (c *Command) Alias(name, target string) {
	f := c.set.Lookup(target)
	if f == nil {
		panic("cli: alias of an unknown flag " + target) // a mistake in the table, seen by every test
	}
	alias := *f
	alias.Name, alias.Shorthand, alias.Hidden = name, "", true
	c.set.AddFlag(&alias)
}

// Changed reports whether a flag, or an alias of it, was given.
func (c *Command) Changed(names ...string) bool {
	for _, n := range names {
		if c.set.Changed(n) {
			return true
		}
	}
	return false
}

// Parse reads args and returns what is no flag. Help, man page and completions are printed to out and
// end with ErrDone. Any other error is a UsageError.
func (c *Command) Parse(args []string, out io.Writer) ([]string, error) {
	var man bool
	var shell string
	help := c.set.BoolP("help", "h", false, "")
	c.set.BoolVar(&man, "man", false, "")
	c.set.StringVar(&shell, "completion", "", "")
	if err := c.set.Parse(args); err != nil {
		return nil, Errorf("%s; %s --help lists the flags", c.explain(err), c.Name)
	}
	var err error
	switch {
	case *help:
		_, err = io.WriteString(out, c.Help())
	case man:
		_, err = io.WriteString(out, c.Man())
	case shell != "":
		var text string
		if text, err = c.Completion(shell); err == nil {
			_, err = io.WriteString(out, text)
		}
	default:
		return c.set.Args(), nil
	}
	if err != nil {
		return nil, err
	}
	return nil, ErrDone
}

// explain puts pflag's errors into the form of ours, with the name that is meant if a flag is close to
// one of the table.
func (c *Command) explain(err error) string {
	msg := err.Error()
	var missing *pflag.NotExistError
	if errors.As(err, &missing) {
		name := missing.GetSpecifiedName()
		if len(name) == 1 && missing.GetSpecifiedShortnames() != "" {
			return "there is no flag -" + name
		}
		msg = "there is no flag --" + name
		if close := c.closest(name); close != "" {
			msg += " (did you mean --" + close + "?)"
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return fmt.Sprintf("--%s %s: %v", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return msg
}

// closest finds the long name with the least edit distance, if that is small.
func (c *Command) closest(name string) string {
	best, least := "", 3
	c.set.VisitAll(func(f *pflag.Flag) {
		if d := distance(name, f.Name); d < least && !f.Hidden {
			best, least = f.Name, d
		}
	})
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// long is the flag as it is typed.
func (f *Flag) long() string {
	s := "--" + f.Name
	switch {
	case f.Optional != "":
		s += "[=" + f.Arg + "]"
	case f.Arg != "":
		s += " " + f.Arg
	}
	return s
}

// text is the help with choices and default.
func (f *Flag) text() string {
	s := f.Help
	if len(f.Choices) > 0 && !strings.Contains(f.Arg, "|") {
		s += ": " + strings.Join(f.Choices, ", ")
	}
	if f.Default != "" {
		s += " [" + f.Default + "]"
	}
	return s
}
