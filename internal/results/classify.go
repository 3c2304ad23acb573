// What went wrong, in the kinds that exit codes tell apart.

package results

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"muxperf/cli"
	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/transport"
	"muxperf/transport/stack"
)

// Classify finds the kind of an error, and what to do about it.
func Classify(err error) *report.Error {
	var known *report.Error
	if errors.As(err, &known) {
		return known
	}
	var usage *cli.UsageError
	if errors.As(err, &usage) {
		return report.Wrap(report.KindUsage, err, "")
	}
	var abort *control.Abort
	if errors.As(err, &abort) {
		return fromAbort(err, abort)
	}
	for _, k := range kinds() {
		if errors.Is(err, k.is) {
			return report.Wrap(k.kind, err, k.hint)
		}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return report.Wrap(report.KindStalled, err, "")
	}
	return report.Wrap(report.KindFailed, err, "")
}

// kinds is the table of errors, the more telling ones first.
func kinds() []struct {
	is   error
	kind report.Kind
	hint string
} {
	return []struct {
		is   error
		kind report.Kind
		hint string
	}{
		{control.ErrInterrupted, report.KindInterrupted, ""},
		{context.Canceled, report.KindInterrupted, ""},
		{protocol.ErrPayload, report.KindVerify, "a layer, or the memory, of one of the ends changes bytes"},
		{protocol.ErrShort, report.KindVerify, ""},
		{protocol.ErrResponse, report.KindVerify, "is the other end an echo server?"},
		{transport.ErrPeerID, report.KindConnect, "check the address, or leave out /p2p/… to accept any peer"},
		{transport.ErrRefused, report.KindRefused, ""},
		{transport.ErrProtocol, report.KindUnsupported, "--protocol chooses another"},
		{transport.ErrNoHalfClose, report.KindUnsupported, "this protocol needs one: choose another --protocol, or --mux yamux"},
		{syscall.ECONNREFUSED, report.KindConnect, "is the server running, and is this its port?"},
		{stack.ErrUnreachable, report.KindConnect, ""},
		{transport.ErrHandshake, report.KindConnect, "do both ends use the same --security and --mux?"},
		{syscall.EMFILE, report.KindFailed, "raise the limit of open files: ulimit -n"},
		{syscall.EADDRINUSE, report.KindUsage, "choose another port with -p, or end the program that has it"},
		{control.ErrPeerGone, report.KindFailed, ""},
		{context.DeadlineExceeded, report.KindStalled, ""},
		{os.ErrDeadlineExceeded, report.KindStalled, ""},
	}
}

// fromAbort maps the codes of the control exchange.
func fromAbort(err error, a *control.Abort) *report.Error {
	kind := map[string]report.Kind{
		control.CodeVersion: report.KindUnsupported, control.CodeToken: report.KindRefused, control.CodeLimit: report.KindRefused,
		control.CodeParams: report.KindRefused, control.CodeStall: report.KindStalled, control.CodeVerify: report.KindVerify,
		control.CodeBytes: report.KindVerify, control.CodeInterrupted: report.KindInterrupted,
	}[a.Code]
	if kind == "" {
		kind = report.KindFailed
	}
	e := report.Wrap(kind, err, "")
	e.Message, e.Hint = a.Message, a.Hint
	return e
}
