// The flood: over our own exchange if the server speaks it, else over what it does speak.

package main

import (
	"context"
	"errors"
	"time"

	"muxperf/internal/environ"
	"muxperf/internal/results"
	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/transport"
	"muxperf/transport/stack"
)

// flood measures throughput.
func (r *runner) flood(ctx context.Context) (*report.Result, error) {
	if r.bare() {
		return r.foreign(ctx, nil, r.foreignProtocols()[0])
	}
	sessions, err := r.dial(ctx, r.o.connections)
	if err != nil {
		return r.blank(protocol.Control), err
	}
	defer closeAll(sessions)
	var res *report.Result
	for _, p := range r.protocols() {
		if p == protocol.Control {
			res, err = r.controlled(ctx, sessions)
		} else {
			res, err = r.foreign(ctx, sessions, p)
		}
		if !errors.Is(err, transport.ErrProtocol) {
			break
		}
	}
	return res, err
}

// bare reports whether there is nothing to negotiate: the peer is an echo or a discard server, at the
// other end of a socket or behind a Wisp server.
func (r *runner) bare() bool {
	return r.o.noControl && r.o.mux == stack.None && r.o.security == stack.Plaintext
}

// protocols are those to try, in order.
func (r *runner) protocols() []string {
	switch r.o.protocol {
	case "auto":
		if r.o.target != "" {
			return []string{protocol.Discard}
		}
		if r.o.mux == stack.Wisp || r.o.bidir || r.o.verify {
			return []string{protocol.Control}
		}
		return []string{protocol.Control, protocol.Perf100, protocol.Perf010}
	case "muxperf":
		return []string{protocol.Control}
	}
	return r.foreignProtocols()
}

// foreignProtocols is the one without a control exchange that was asked for.
func (r *runner) foreignProtocols() []string {
	switch r.o.protocol {
	case "echo":
		return []string{protocol.Echo}
	case "discard", "auto":
		return []string{protocol.Discard}
	}
	return []string{r.o.protocol}
}

// controlled runs our own exchange.
func (r *runner) controlled(ctx context.Context, sessions []transport.Session) (*report.Result, error) {
	info := sessions[0].Info()
	res := r.result(protocol.Control, info)
	directions := plannedDirections(r.o.direction())
	c := control.Client{Agent: environ.Agent(), Token: r.token, Clock: r.clock, Environment: r.env}
	began := time.Now()
	c.Granted = func(g control.Grant) {
		results.Granted(res, g)
		res.Peer.Agent = g.Agent
		res.Setup = &report.Setup{Setup: info.Setup, Stream: time.Since(began)}
		res.Directions = directions
		r.renderer.Start(res)
	}
	c.Observer.Interval = func(received bool, iv measure.Interval, tcp transport.TCPInfo) {
		live := report.Live{Interval: iv, Direction: "upload", At: "sender", TCP: tcp}
		if received {
			live.Direction, live.At = "download", "receiver"
		}
		r.show(live)
	}
	out, err := c.Run(ctx, sessions, r.o.params())
	if out.Local == nil {
		res.Directions = nil
		return res, err
	}
	res.Setup.Stream = out.Stream
	results.Finished(res, out.Local, out.Peer, err)
	if r.o.serverOutput && out.Peer != nil {
		res.ServerOutput = r.serverView(info, out, err)
	}
	return res, err
}

// serverView is the run as the server reported it.
func (r *runner) serverView(info transport.Info, out control.Outcome, err error) *report.Result {
	info.Local, info.Remote = info.Remote, info.Local
	info.LocalPeer, info.RemotePeer = info.RemotePeer, info.LocalPeer
	v := results.New("server", report.Flood, protocol.Control, info)
	v.Started = time.Now()
	results.Granted(v, out.Grant)
	v.Environment = out.Peer.Environment
	results.Finished(v, out.Peer, out.Local, err)
	return v
}

// plannedDirections names what will be measured, before there is anything.
func plannedDirections(d control.Direction) []report.Direction {
	switch d {
	case control.Both:
		return []report.Direction{{Name: "upload"}, {Name: "download"}}
	case control.Download:
		return []report.Direction{{Name: "download"}}
	}
	return []report.Direction{{Name: "upload"}}
}
