// The sessions that are open, and when to close them: after being idle for too long, and when the server
// goes down, then at once if nothing runs on them.

package main

import (
	"sync"
	"time"
)

// A sessionSet is every session of the server.
type sessionSet struct {
	mu       sync.Mutex
	open     map[*activity]struct{}
	draining bool
}

// An activity counts the streams of one session.
type activity struct {
	set     *sessionSet
	close   func()
	busy    func() bool   // there are streams that are not counted here
	after   time.Duration // idle time that is allowed; 0: any
	timer   *time.Timer
	streams int
}

// add registers a session. busy tells of streams that its owner does not enter, such as those that a Wisp
// server passes on.
func (s *sessionSet) add(idle time.Duration, busy func() bool, close func()) *activity {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*activity]struct{}{}
	}
	a := &activity{set: s, close: close, busy: busy, after: idle}
	s.open[a] = struct{}{}
	switch {
	case s.draining:
		go close()
	case idle > 0:
		a.timer = time.AfterFunc(idle, a.expire)
	}
	return a
}

// expire closes a session that was idle for long enough, or waits as long again.
func (a *activity) expire() {
	if !a.busy() {
		a.close()
		return
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	if _, open := a.set.open[a]; open && a.streams == 0 {
		a.timer.Reset(a.after)
	}
}

// remove forgets a session that has ended.
func (s *sessionSet) remove(a *activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, a)
	if a.timer != nil {
		a.timer.Stop()
	}
}

// closeIdle closes the sessions without a stream now, and the others when their last one ends.
func (s *sessionSet) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for a := range s.open {
		if a.streams == 0 {
			go a.close()
		}
	}
}

// enter counts a stream that begins.
func (a *activity) enter() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	if a.streams++; a.timer != nil {
		a.timer.Stop()
	}
}

// leave counts a stream that has ended.
func (a *activity) leave() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	if a.streams--; a.streams > 0 {
		return
	}
	switch {
	case a.set.draining:
		go a.close()
	case a.timer != nil:
		a.timer.Reset(a.after)
	}
}
