// Errors as users see them: one line that says what was tried, what happened and what to do, and an
// exit code that scripts can tell apart.

package report

import (
	"errors"
	"fmt"
)

// A Kind is a sort of failure; each has an exit code.
type Kind string

// The kinds, with their exit codes.
const (
	KindFailed      Kind = "failed"      // 1: the test failed
	KindUsage       Kind = "usage"       // 2: the command line makes no sense
	KindConnect     Kind = "connect"     // 3: no connection, or no handshake
	KindRefused     Kind = "refused"     // 4: the peer, or a limit, said no
	KindStalled     Kind = "stalled"     // 5: stalled or timed out
	KindVerify      Kind = "verify"      // 6: the payload arrived changed, or not whole
	KindThreshold   Kind = "threshold"   // 7: a threshold was missed
	KindUnsupported Kind = "unsupported" // 127: the peer, or this build, cannot do it
	KindInterrupted Kind = "interrupted" // 130: the user ended it
)

// ExitCode is what the program exits with.
func (k Kind) ExitCode() int {
	switch k {
	case "":
		return 0
	case KindUsage:
		return 2
	case KindConnect:
		return 3
	case KindRefused:
		return 4
	case KindStalled:
		return 5
	case KindVerify:
		return 6
	case KindThreshold:
		return 7
	case KindUnsupported:
		return 127
	case KindInterrupted:
		return 130
	}
	return 1
}

// An Error is a failure with its kind and a hint.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it
	cause   error
}

// Wrap makes an Error of err; it is err itself if that is one already.
func Wrap(kind Kind, err error, hint string) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: kind, Message: err.Error(), Hint: hint, cause: err}
}

// Errorf makes an Error.
func Errorf(kind Kind, hint, format string, a ...any) *Error {
	return Wrap(kind, fmt.Errorf(format, a...), hint)
}

func (e *Error) Unwrap() error { return e.cause }

// Error is one line.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}
