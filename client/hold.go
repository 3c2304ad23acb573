package main

import (
	"context"

	"muxperf/report"
)

func (r *runner) hold(ctx context.Context) (*report.Result, error) {
	return r.blank(""), &report.Error{Kind: report.KindUnsupported, Message: "hold is not built yet"}
}
