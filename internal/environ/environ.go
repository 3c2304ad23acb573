// Package environ says what machine and program a result comes from.
package environ

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"muxperf/report"
)

// Version is the program's.
const Version = "0.1.0"

// Tool names the program, with the revision it was built from if that is known.
func Tool() report.Tool {
	t := report.Tool{Name: "muxperf", Version: Version}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				t.Revision = s.Value[:min(12, len(s.Value))] + t.Revision
			case s.Key == "vcs.modified" && s.Value == "true":
				t.Revision += "+changes"
			}
		}
	}
	return t
}

// Agent is the name that peers are told.
func Agent() string { return "muxperf/" + Version }

// Collect reads the machine: what it is, and the settings of the kernel that decide about throughput. What
// cannot be read is left out.
func Collect() map[string]string {
	env := map[string]string{
		"os": runtime.GOOS + "/" + runtime.GOARCH, "go": runtime.Version(),
		"cpus": strconv.Itoa(runtime.NumCPU()), "gomaxprocs": strconv.Itoa(runtime.GOMAXPROCS(0)),
	}
	add := func(key, value string) {
		if value != "" {
			env[key] = value
		}
	}
	add("cpu", field("/proc/cpuinfo", "model name"))
	add("kernel", kernel())
	for _, key := range []string{"net.core.rmem_max", "net.core.wmem_max", "net.core.somaxconn", "net.core.default_qdisc",
		"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_notsent_lowat"} {
		add(key, line("/proc/sys/"+strings.ReplaceAll(key, ".", "/")))
	}
	add("cpu governor", line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
	for _, key := range []string{"GOGC", "GOMEMLIMIT", "GODEBUG"} {
		add(key, os.Getenv(key))
	}
	return env
}

func kernel() string {
	release := line("/proc/sys/kernel/osrelease")
	if release == "" {
		return ""
	}
	return line("/proc/sys/kernel/ostype") + " " + release
}

// line is a small file's text with its white space folded; "" if there is none.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// field is the value of the first "key : value" line.
func field(path, key string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Redact returns args without what must not be shown.
func Redact(args []string) []string {
	out := make([]string, len(args))
	hide := false
	for i, a := range args {
		name, _, hasValue := strings.Cut(a, "=")
		switch {
		case hide:
			out[i], hide = "***", false
		case secret(name) && hasValue:
			out[i] = name + "=***"
		default:
			out[i], hide = a, secret(name)
		}
	}
	return out
}

// secret reports whether a flag's value must not be shown. Files that hold secrets may be named.
func secret(flag string) bool { return flag == "--wisp-password" || flag == "--token" }
