//go:build !linux

package testee

import "errors"

func newEngine(t *Testee) (engine, error) {
	if t.cfg.Engine == EngineEpoll {
		return nil, errors.New("the epoll engine exists on Linux only")
	}
	return newNetEngine(t), nil
}
