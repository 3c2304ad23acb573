// Man pages and shell completions.

package cli

import (
	"fmt"
	"strings"
)

// Man is the manual page, in troff's man macros.
func (c *Command) Man() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" muxperf\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n",
		strings.ToUpper(c.Name), c.Name, roff(c.Summary), roff(c.Usage))
	for _, g := range c.groups {
		if len(g.flags) == 0 {
			continue
		}
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(roff(g.title)))
		for _, f := range g.flags {
			names := `\fB` + roff(f.long()) + `\fR`
			if f.Short != "" {
				names = `\fB` + roff("-"+f.Short) + `\fR, ` + names
			}
			fmt.Fprintf(&b, ".TP\n%s\n%s\n", names, roff(f.text()))
		}
	}
	if len(c.Examples) > 0 {
		b.WriteString(".SH EXAMPLES\n")
		for _, e := range c.Examples {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(e.Command), roff(e.Does))
		}
	}
	if len(c.Notes) > 0 {
		b.WriteString(".SH NOTES\n")
		for _, n := range c.Notes {
			fmt.Fprintf(&b, ".PP\n%s\n", roff(n))
		}
	}
	return b.String()
}

// roff escapes text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// Completion is a script for bash, zsh or fish.
func (c *Command) Completion(shell string) (string, error) {
	switch shell {
	case "bash":
		return c.bash(), nil
	case "zsh":
		return c.zsh(), nil
	case "fish":
		return c.fish(), nil
	}
	return "", Errorf("--completion %s: want bash, zsh or fish", shell)
}

func (c *Command) each(do func(f *Flag)) {
	for _, g := range c.groups {
		for _, f := range g.flags {
			do(f)
		}
	}
}

// bash splits --flag=value at the sign. A flag whose value may be left out takes one only there.
func (c *Command) bash() string {
	var words []string
	var cases strings.Builder
	c.each(func(f *Flag) {
		words = append(words, "--"+f.Name)
		if len(f.Choices) == 0 {
			return
		}
		pattern, only := "--"+f.Name, ""
		if f.Optional != "" {
			only = "[[ $sign ]] && "
		} else if f.Short != "" {
			pattern += "|-" + f.Short
		}
		fmt.Fprintf(&cases, "\t\t%s) %sCOMPREPLY=($(compgen -W '%s' -- \"$cur\")) && return ;;\n", pattern, only, strings.Join(f.Choices, " "))
	})
	return fmt.Sprintf(`# bash completion for %[1]s
_%[1]s() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} sign=
	if [[ $cur == = ]]; then
		cur= sign=1
	elif [[ $prev == = ]]; then
		prev=${COMP_WORDS[COMP_CWORD-2]} sign=1
	fi
	case $prev in
%[2]s	esac
	if [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W '%[3]s' -- "$cur"))
	else
		COMPREPLY=($(compgen -A hostname -- "$cur"))
	fi
}
complete -F _%[1]s %[1]s
`, c.Name, cases.String(), strings.Join(words, " "))
}

func (c *Command) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n_arguments -s \\\n", c.Name)
	quote := strings.NewReplacer("'", "'\\''", "[", `\[`, "]", `\]`, ":", `\:`)
	c.each(func(f *Flag) {
		value, long := "", "--"+f.Name
		if f.Optional != "" { // the value, if there is one, follows a sign
			long += "=-"
			value = ":"
		}
		if f.Arg != "" {
			value += ":" + quote.Replace(f.Arg) + ":"
			if len(f.Choices) > 0 {
				value += "(" + strings.Join(f.Choices, " ") + ")"
			}
		}
		help := quote.Replace(f.Help)
		if f.Short != "" {
			fmt.Fprintf(&b, "\t'(-%s --%s)'{-%s,%s}'[%s]%s' \\\n", f.Short, f.Name, f.Short, long, help, value)
		} else {
			fmt.Fprintf(&b, "\t'%s[%s]%s' \\\n", long, help, value)
		}
	})
	b.WriteString("\t'*:address:_hosts'\n")
	return b.String()
}

func (c *Command) fish() string {
	var b strings.Builder
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`)
	c.each(func(f *Flag) {
		fmt.Fprintf(&b, "complete -c %s -l %s", c.Name, f.Name)
		if f.Short != "" {
			fmt.Fprintf(&b, " -s %s", f.Short)
		}
		if f.Arg != "" && f.Optional == "" {
			b.WriteString(" -x")
		}
		if len(f.Choices) > 0 {
			fmt.Fprintf(&b, " -a '%s'", strings.Join(f.Choices, " "))
		}
		fmt.Fprintf(&b, " -d '%s'\n", quote.Replace(f.Help))
	})
	return b.String()
}
