//go:build !unix

package main

import (
	"io"

	"muxperf/report"
)

func daemonise([]string, io.Writer) error {
	return &report.Error{Kind: report.KindUnsupported, Message: "-D is not supported on this system"}
}
