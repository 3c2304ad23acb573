// Log lines are limited: no client, and no crowd of them, can make the server write without bound.

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	logBurst     = 100 // lines in one window
	logWindow    = 10 * time.Second
	suppressedAs = "log lines were left out"
)

// A limitedHandler passes on at most logBurst lines in each logWindow, and then says how many it left
// out.
type limitedHandler struct {
	slog.Handler
	state *limitState
}

type limitState struct {
	mu      sync.Mutex
	opened  time.Time
	written int
	left    int
}

func newLimitedHandler(h slog.Handler) slog.Handler {
	return &limitedHandler{Handler: h, state: &limitState{}}
}

func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	h.state.mu.Lock()
	left := 0
	if r.Time.Sub(h.state.opened) >= logWindow {
		left = h.state.left
		h.state.opened, h.state.written, h.state.left = r.Time, 0, 0
	}
	h.state.written++
	over := h.state.written > logBurst
	if over {
		h.state.left++
	}
	h.state.mu.Unlock()
	if left > 0 {
		note := slog.NewRecord(r.Time, slog.LevelWarn, suppressedAs, 0)
		note.AddAttrs(slog.Int("count", left))
		if err := h.Handler.Handle(ctx, note); err != nil {
			return err
		}
	}
	if over {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *limitedHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(a), h.state}
}

func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.state}
}
