package main

import (
	"context"
	"log/slog"
	"time"
)

// countingHandler counts lines.
type countingHandler struct{ n *int }

func (c *countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (c *countingHandler) Handle(context.Context, slog.Record) error {
	*c.n++
	return nil
}
func (c *countingHandler) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *countingHandler) WithGroup(string) slog.Handler      { return c }

func record(at time.Time) slog.Record { return slog.NewRecord(at, slog.LevelInfo, "line", 0) }
