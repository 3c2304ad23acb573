// Package results turns what a run gave into the Result model. Client and server use it alike, each from
// its own view.
package results

import (
	"muxperf/internal/environ"
	"muxperf/protocol/control"
	"muxperf/report"
	"muxperf/transport"
)

// New makes the part of a Result that is known before the payload flows.
func New(role, test, protocol string, info transport.Info) *report.Result {
	return &report.Result{SchemaVersion: report.SchemaVersion, Tool: environ.Tool(), Role: role, Test: test, Protocol: protocol,
		Stack: info.Stack, Peer: report.Peer{Address: info.Remote, ID: info.RemotePeer},
		Params: report.Params{Connections: 1, Streams: 1}}
}

// Granted adds what was asked for, and what the server made of it.
func Granted(r *report.Result, g control.Grant) {
	r.Params = Params(g.Params)
	r.Title = g.Params.Title
	for _, l := range g.Limits {
		r.Limits = append(r.Limits, report.Limit(l))
	}
}

// Params are the parameters of a run as a Result has them.
func Params(p control.Params) report.Params {
	return report.Params{Duration: p.Duration, Omit: p.Omit, Interval: p.Interval, Bytes: p.Bytes, Block: p.Block,
		Connections: max(1, p.Connections), Streams: max(1, p.Streams), Rate: p.Rate, StreamRate: p.StreamRate, Verify: p.Verify}
}

// Finished adds both ends' reports; either may be nil. err is why the run is incomplete.
func Finished(r *report.Result, local, peer *control.Report, err error) {
	client, server := local, peer
	if r.Role == "server" {
		client, server = peer, local
	}
	r.Directions = nil
	for _, d := range []report.Direction{
		{Name: "upload", Sender: sent(client), Receiver: received(server)},
		{Name: "download", Sender: sent(server), Receiver: received(client)},
	} {
		switch {
		case d.Receiver != nil:
			d.MeasuredAt = "receiver"
		case d.Sender != nil:
			d.MeasuredAt = "sender"
		default:
			continue
		}
		r.Directions = append(r.Directions, d)
	}
	moved := r.Bytes()
	if local != nil {
		r.CPU, r.TCP = cpu(local.CPU, moved), local.TCP
	}
	if peer != nil {
		r.PeerCPU, r.PeerTCP, r.PeerEnv = cpu(peer.CPU, moved), peer.TCP, peer.Environment
		r.Peer.Agent = peer.Agent
	}
	r.Complete = err == nil
	if err != nil {
		r.Error = Classify(err)
	}
	r.Diagnosis = Diagnose(r)
}

func sent(c *control.Report) *report.Side {
	if c == nil {
		return nil
	}
	return side(c.Sent)
}

func received(c *control.Report) *report.Side {
	if c == nil {
		return nil
	}
	return side(c.Received)
}

func side(s *control.Side) *report.Side {
	if s == nil {
		return nil
	}
	out := report.Side(*s)
	return &out
}

func cpu(c control.CPU, bytes uint64) *report.CPU {
	return report.NewCPU(c.User, c.System, c.Wall, bytes)
}
