// The kinds of values that flags take: each parses what people type, and says what it wants otherwise.

package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value adapts a parse function to pflag.Value.
type value struct {
	text  string
	kind  string
	parse func(string) error
	onSet func()
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }
func (v *value) Set(s string) error {
	if err := v.parse(s); err != nil {
		return err
	}
	v.text = s
	if v.onSet != nil {
		v.onSet()
	}
	return nil
}

// Switch adds a flag without argument.
func (g *Group) Switch(p *bool, name, short, help string) *Flag {
	return g.add(&value{kind: "bool", parse: func(s string) (err error) {
		if *p, err = strconv.ParseBool(s); err != nil {
			return fmt.Errorf("want nothing, true or false")
		}
		return nil
	}}, Flag{Name: name, Short: short, Help: help})
}

// Text adds a flag with any text.
func (g *Group) Text(p *string, name, short, arg, help string) *Flag {
	return g.add(&value{kind: "string", parse: func(s string) error { *p = s; return nil }},
		Flag{Name: name, Short: short, Arg: arg, Help: help, Default: *p})
}

// Texts adds a flag that may be repeated.
func (g *Group) Texts(p *[]string, name, short, arg, help string) *Flag {
	return g.add(&value{kind: "string", parse: func(s string) error { *p = append(*p, s); return nil }},
		Flag{Name: name, Short: short, Arg: arg, Help: help + " (repeatable)"})
}

// Count adds a flag with a whole number from least to most.
func (g *Group) Count(p *int, name, short, arg string, least, most int, help string) *Flag {
	f := Flag{Name: name, Short: short, Arg: arg, Help: help}
	if *p != 0 {
		f.Default = strconv.Itoa(*p)
	}
	return g.add(&value{kind: "int", parse: func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		*p = n
		return nil
	}}, f)
}

// Choice adds a flag that takes one of choices.
func (g *Group) Choice(p *string, name, short, arg string, choices []string, help string) *Flag {
	return g.add(choice(p, choices), Flag{Name: name, Short: short, Arg: arg, Help: help, Default: *p, Choices: choices})
}

// OptionalChoice adds a flag that means alone when it has no argument.
func (g *Group) OptionalChoice(p *string, name, short, arg, alone string, choices []string, help string) *Flag {
	return g.add(choice(p, choices), Flag{Name: name, Short: short, Arg: arg, Help: help, Optional: alone, Choices: choices})
}

func choice(p *string, choices []string) *value {
	return &value{kind: "string", parse: func(s string) error {
		if !slices.Contains(choices, s) {
			return fmt.Errorf("want one of %s", strings.Join(choices, ", "))
		}
		*p = s
		return nil
	}}
}

// Duration adds a flag in seconds, or with a unit.
func (g *Group) Duration(p *time.Duration, name, short, arg, help string) *Flag {
	f := Flag{Name: name, Short: short, Arg: arg, Help: help}
	if *p != 0 {
		f.Default = strings.TrimSuffix(strconv.FormatFloat(p.Seconds(), 'f', -1, 64), ".0")
	}
	return g.add(&value{kind: "duration", parse: func(s string) (err error) { *p, err = ParseDuration(s); return err }}, f)
}

// Size adds a flag in bytes, with K, M or G for powers of 1024.
func (g *Group) Size(p *uint64, name, short, arg, help string) *Flag {
	f := Flag{Name: name, Short: short, Arg: arg, Help: help}
	if *p != 0 {
		f.Default = FormatSize(*p)
	}
	return g.add(&value{kind: "size", parse: func(s string) (err error) { *p, err = ParseSize(s); return err }}, f)
}

// Rate adds a flag in bits per second, with K, M or G for powers of 1000.
func (g *Group) Rate(p *float64, name, short, arg, help string) *Flag {
	return g.add(&value{kind: "rate", parse: func(s string) (err error) { *p, err = ParseRate(s); return err }},
		Flag{Name: name, Short: short, Arg: arg, Help: help})
}

// Func adds a flag whose argument goes through parse.
func (g *Group) Func(parse func(string) error, name, short, arg, help string) *Flag {
	return g.add(&value{kind: "string", parse: parse}, Flag{Name: name, Short: short, Arg: arg, Help: help})
}

// ParseDuration reads seconds ("10", "0.5") or a duration with a unit ("500ms", "2m").
func ParseDuration(s string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil && n >= 0 && n < math.MaxInt64/1e9 {
		return time.Duration(math.Round(n * 1e9)), nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("want seconds (10, 0.5) or a duration with a unit (500ms, 2m)")
}

// ParseSize reads bytes with an optional K, M, G or T (powers of 1024; "KiB" and "KB" are read alike).
func ParseSize(s string) (uint64, error) {
	n, ok := scaled(s, 1024)
	if !ok || n != math.Trunc(n) || n >= 1<<63 {
		return 0, fmt.Errorf("want bytes (65536) or K, M, G for powers of 1024 (64K)")
	}
	return uint64(n), nil
}

// ParseRate reads bits per second with an optional K, M, G or T (powers of 1000).
func ParseRate(s string) (float64, error) {
	n, ok := scaled(s, 1000)
	if !ok {
		return 0, fmt.Errorf("want bits per second (1000000) or K, M, G for powers of 1000 (1M)")
	}
	return n, nil
}

// scaled reads a number with a letter for a power of base, and an optional unit after it.
func scaled(s string, base float64) (float64, bool) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, false
	}
	unit := strings.ToLower(s[len(digits):])
	power := 0
	if unit != "" {
		power = 1 + strings.IndexByte("kmgt", unit[0])
		if power > 0 {
			unit = unit[1:]
		}
	}
	switch unit {
	case "", "b", "ib", "bit", "bit/s", "bits", "bps":
		return n * math.Pow(base, float64(power)), true
	}
	return 0, false
}

// FormatSize writes a size as ParseSize reads it.
func FormatSize(n uint64) string {
	for i, unit := range []string{"T", "G", "M", "K"} {
		if f := uint64(1) << (10 * (4 - i)); n >= f && n%f == 0 {
			return strconv.FormatUint(n/f, 10) + unit
		}
	}
	return strconv.FormatUint(n, 10)
}
