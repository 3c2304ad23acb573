//go:build linux

// The checks: whether what a client returned and printed can be so.

package main

import (
	"errors"
	"fmt"
	"strings"

	"muxperf/report"
)

// noticed is how many bytes after a changed one make it certain that there was payload among them or after
// them, so that the change cannot have gone unnoticed.
const noticed = 64 << 10

// check finds what is wrong with an outcome.
func check(st *step, o *outcome) []string {
	var wrong []string
	say := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	for _, trouble := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(o.stderr, trouble) && !o.hung {
			say("the client printed %q", trouble)
		}
	}
	if o.orphans {
		say("the client left processes behind")
	}
	if o.hung {
		say("the client hung: no end %s after it began", st.limit())
		return wrong
	}
	if o.exit < 0 {
		if st.fault.name != faultKill && st.fault.name != faultInt {
			say("the client was ended by a signal: %s", o.signal)
		}
		return wrong
	}
	if o.exit != 0 {
		return append(wrong, failed(st, o)...)
	}
	switch {
	case o.unread != nil:
		say("exit code 0 without a result: %v", o.unread)
	case !o.result.Complete || o.result.Error != nil:
		say("exit code 0 with an incomplete result: %v", o.result.Error)
	case st.fault.name == faultFlip && st.sealed && o.struck && o.later > noticed:
		say("exit code 0 although a bit was changed, with %d bytes after it", o.later)
	default:
		return append(wrong, correct(st, o.result)...)
	}
	return wrong
}

// failed looks at a client that says that it has failed: whether it may, and whether it says so everywhere.
func failed(st *step, o *outcome) []string {
	var wrong []string
	switch {
	case st.fault.harmless():
		wrong = append(wrong, fmt.Sprintf("exit code %d, want 0: %s", o.exit, strings.TrimSpace(o.stderr)))
	case o.exit == report.KindUsage.ExitCode():
		wrong = append(wrong, "the plan makes no sense to the client: "+strings.TrimSpace(o.stderr))
	}
	switch r := o.result; {
	case r == nil:
		wrong = append(wrong, fmt.Sprintf("exit code %d without a result: %v", o.exit, o.unread))
	case r.Complete || r.Error == nil:
		wrong = append(wrong, fmt.Sprintf("exit code %d with a complete result", o.exit))
	case r.Error.Kind.ExitCode() != o.exit:
		wrong = append(wrong, fmt.Sprintf("exit code %d, but the result's kind is %q", o.exit, r.Error.Kind))
	}
	return wrong
}

// correct looks at a complete result.
func correct(st *step, r *report.Result) []string {
	err := errors.Join(directions(st.want, r), transactions(st.want, r), held(st.want, r))
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// directions compares what was sent with what has arrived.
func directions(w want, r *report.Result) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	found := map[string]bool{}
	for _, d := range r.Directions {
		found[d.Name] = true
		if w.bothEnds && (d.Sender == nil || d.Receiver == nil) {
			bad("%s: one end has no figures", d.Name)
			continue
		}
		h := d.Headline()
		if h == nil {
			bad("%s: no end has figures", d.Name)
			continue
		}
		if total := h.Bytes + h.Omitted; w.bytes > 0 && total != w.bytes {
			bad("%s: %d bytes, want %d", d.Name, total, w.bytes)
		}
		if d.Sender != nil && d.Receiver != nil && d.Sender.Bytes+d.Sender.Omitted != d.Receiver.Bytes+d.Receiver.Omitted {
			bad("%s: %d bytes were sent and %d received", d.Name, d.Sender.Bytes+d.Sender.Omitted, d.Receiver.Bytes+d.Receiver.Omitted)
		}
		if w.verify && (d.Receiver == nil || !d.Receiver.Verified) {
			bad("%s: not verified", d.Name)
		}
		for _, side := range []*report.Side{d.Sender, d.Receiver} {
			if side != nil {
				errs = append(errs, sums(d.Name, side))
			}
		}
	}
	if found["upload"] != w.up || found["download"] != w.down {
		bad("directions %v, want upload %t and download %t", found, w.up, w.down)
	}
	if sent, back := echoed(r); !w.bothEnds && w.up && w.down && sent != back {
		bad("%d bytes were sent to an echo and %d came back", sent, back)
	}
	return errors.Join(errs...)
}

// sums adds up streams and intervals.
func sums(name string, s *report.Side) error {
	var streams, intervals uint64
	for _, st := range s.Streams {
		streams += st.Bytes
	}
	for _, iv := range s.Intervals {
		intervals += iv.Bytes
	}
	if len(s.Streams) > 0 && streams != s.Bytes || len(s.Intervals) > 0 && intervals != s.Bytes+s.Omitted {
		return fmt.Errorf("%s: %d bytes, but %d in the streams and %d in the intervals", name, s.Bytes, streams, intervals)
	}
	return nil
}

// echoed is what went to an echo server and what came from it.
func echoed(r *report.Result) (sent, back uint64) {
	for _, d := range r.Directions {
		if h := d.Headline(); h != nil && d.Name == "upload" {
			sent = h.Bytes
		} else if h != nil {
			back = h.Bytes
		}
	}
	return sent, back
}

func transactions(w want, r *report.Result) error {
	if w.count == 0 {
		return nil
	}
	if r.Latency == nil || r.Latency.Corrected.Count != int64(w.count) {
		return fmt.Errorf("want %d transactions: %+v", w.count, r.Latency)
	}
	return nil
}

func held(w want, r *report.Result) error {
	if w.hold == 0 {
		return nil
	}
	if h := r.Hold; h == nil || h.Established != w.hold || h.Echoed != w.hold || len(h.Failures) > 0 {
		return fmt.Errorf("want %d held: %+v", w.hold, h)
	}
	return nil
}
