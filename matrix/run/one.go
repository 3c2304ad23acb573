// One run of one cell: start the server, wait until it answers, run the client, compare what both ends say,
// end both.

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muxperf/matrix/cell"
	"muxperf/matrix/peer"
	"muxperf/matrix/process"
)

const (
	readyTimeout = 20 * time.Second // for a server to answer
	stopGrace    = 3 * time.Second
	portTries    = 4
)

// A line is what a peer prints.
type line struct {
	Event      string          `json:"event"`
	Role       string          `json:"role"`
	Address    string          `json:"address"`
	Protocol   string          `json:"protocol"`
	Message    string          `json:"message"`
	Kind       string          `json:"kind"`
	Sent       uint64          `json:"sent_bytes"`
	Received   uint64          `json:"received_bytes"`
	Seconds    float64         `json:"seconds"`
	Setup      float64         `json:"setup_seconds"`
	Incomplete bool            `json:"incomplete"`
	Intervals  []cell.Interval `json:"intervals"`
}

// A failure is why a run has no number.
type failure struct {
	state  cell.State
	reason string
}

func (f *failure) Error() string { return f.reason }

func failed(format string, a ...any) error { return &failure{cell.Failed, fmt.Sprintf(format, a...)} }

// An attempt is one run under way.
type attempt struct {
	m        *Runner
	key      cell.Key
	client   *peer.Peer
	server   *peer.Peer
	protocol string
	seconds  float64
	log      string
	target   *Target
}

// once measures a cell once. The repetition says what happened.
func (m *Runner) once(ctx context.Context, key cell.Key, round int, seconds float64) cell.Rep {
	a := &attempt{m: m, key: key, client: m.peers[key.Client], server: m.peers[key.Server], seconds: seconds,
		protocol: m.protocolFor(key), log: filepath.Join(m.Out, fmt.Sprintf("%s.%d.log", key, round))}
	rep, err := a.run(ctx)
	rep.At, rep.Log, rep.State, rep.Protocol = time.Now(), a.log, cell.OK, a.protocol
	var f *failure
	switch {
	case errors.As(err, &f):
		rep.State, rep.Reason = f.state, f.reason
	case err != nil:
		rep.State, rep.Reason = cell.Failed, err.Error()
	}
	return rep
}

// protocolFor is the first of the client's protocols; --protocol chooses another.
func (m *Runner) protocolFor(key cell.Key) string {
	if isWisp(key.Stack) {
		return ""
	}
	if m.Protocol != "" {
		return m.Protocol
	}
	if p := m.peers[key.Client].Client.Protocols; len(p) > 0 {
		return p[0]
	}
	return ""
}

// run is the whole life of both ends.
func (a *attempt) run(ctx context.Context) (cell.Rep, error) {
	if isWisp(a.key.Stack) {
		does := drop
		if a.key.Mode == "echo" {
			does = echo
		}
		t, err := NewTarget(does)
		if err != nil {
			return cell.Rep{}, err
		}
		defer t.Close()
		a.target = t
	}
	server, address, port, err := a.startServer(ctx)
	if err != nil {
		return cell.Rep{}, err
	}
	defer server.Stop(stopGrace)
	before := server.GroupCPU()
	client, last, err := a.runClient(ctx, address, port)
	if err != nil {
		return cell.Rep{}, err
	}
	rep := cell.Rep{Sent: last.Sent, Returned: last.Received, Seconds: last.Seconds, Setup: last.Setup, MeasuredAt: "sender",
		ClientCPU: client.CPU().Seconds(), Intervals: last.Intervals}
	if last.Protocol != "" && !isWisp(a.key.Stack) {
		a.protocol = last.Protocol
	}
	if err := a.receiversTruth(ctx, &rep, server); err != nil {
		return rep, err
	}
	rep.ServerCPU = (server.GroupCPU() - before).Seconds()
	return rep, a.plausible(&rep)
}

// values fill the placeholders.
func (a *attempt) values(address string, port int) map[string]string {
	security, mux, _ := strings.Cut(a.key.Stack, "+")
	mode := a.key.Mode
	if mode == "" {
		mode = "flood"
	}
	block := "128000"
	if isWisp(a.key.Stack) {
		block = "51200"
	}
	v := map[string]string{"host": "127.0.0.1", "port": strconv.Itoa(port), "address": address, "security": security, "mux": mux,
		"protocol": a.protocol, "seconds": strconv.FormatFloat(a.seconds, 'f', -1, 64), "block": block,
		"streams": strconv.Itoa(a.key.Streams), "connections": strconv.Itoa(a.key.Connections), "mode": mode, "target": ""}
	if a.target != nil {
		v["target"] = a.target.Addr()
	}
	return v
}

// startServer starts the server on a free port, on another one if somebody was faster, and waits until it
// answers.
func (a *attempt) startServer(ctx context.Context) (p *process.Process, address string, port int, err error) {
	for range portTries {
		port, err = freePort()
		if err != nil {
			return nil, "", 0, err
		}
		command, err := peer.Fill(a.server.Server.CommandOn(a.key.Stack), a.values("", port))
		if err != nil {
			return nil, "", 0, failed("%s's server command: %v", a.server.Name, err)
		}
		from := process.Size(a.log)
		p, err = process.Start(process.Command{Line: command, Dir: a.server.Dir, Log: a.log})
		if err != nil {
			return nil, "", 0, err
		}
		address, err = a.ready(ctx, p, port)
		if err == nil {
			return p, address, port, nil
		}
		p.Stop(stopGrace)
		if !inUse(process.Since(a.log, from)) {
			return nil, "", 0, err
		}
	}
	return nil, "", 0, failed("no port was free for %s in %d tries", a.server.Name, portTries)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// inUse reports whether a server complained about its port, anywhere in what it said: what follows may be a
// trace of the stack.
func inUse(said string) bool {
	l := strings.ToLower(said)
	return strings.Contains(l, "in use") || strings.Contains(l, "eaddrinuse")
}

// ready waits for the server's line, or until its port answers.
func (a *attempt) ready(ctx context.Context, p *process.Process, port int) (address string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout,
		&failure{cell.DNF, fmt.Sprintf("%s's server did not answer within %s", a.server.Name, readyTimeout)})
	defer cancel()
	if a.server.Server.Ready == "json" {
		address, err = a.readyLine(ctx, p, port)
	} else {
		address, err = a.readyPort(ctx, p, port)
	}
	if errors.Is(err, io.EOF) {
		return "", a.ended(a.server.Name+"'s server", p)
	}
	return address, err
}

func (a *attempt) readyLine(ctx context.Context, p *process.Process, port int) (string, error) {
	for {
		text, err := p.Next(ctx)
		if err != nil {
			return "", err
		}
		var l line
		if json.Unmarshal([]byte(text), &l) != nil || l.Event != "ready" {
			continue
		}
		if isWisp(a.key.Stack) && !strings.HasPrefix(l.Address, "ws") {
			return a.defaultAddress(port), nil // one port that speaks more than Wisp
		}
		return l.Address, nil
	}
}

func (a *attempt) readyPort(ctx context.Context, p *process.Process, port int) (string, error) {
	dialer := net.Dialer{Timeout: time.Second}
	for {
		select {
		case <-p.Done(): // an answer would be somebody else's
			return "", io.EOF
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
		if conn, err := dialer.DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			conn.Close()
			return a.defaultAddress(port), nil
		}
	}
}

func (a *attempt) defaultAddress(port int) string {
	if isWisp(a.key.Stack) {
		return fmt.Sprintf("ws://127.0.0.1:%d/", port)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// ended explains an end that was not due.
func (a *attempt) ended(who string, p *process.Process) error {
	state, last := cell.Failed, process.LastLine(a.log)
	var l line
	if json.Unmarshal([]byte(last), &l) == nil && l.Message != "" {
		last = l.Message
		if l.Kind == "refused" {
			state = cell.Refused
		}
	}
	if p.ExitCode() == 127 {
		state = cell.Unsupported
	}
	return &failure{state, fmt.Sprintf("%s ended with code %d: %s", who, p.ExitCode(), clip(last))}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// runClient runs the client to its end and returns its last result.
func (a *attempt) runClient(ctx context.Context, address string, port int) (*process.Process, line, error) {
	command, err := peer.Fill(a.client.Client.CommandOn(a.key.Stack), a.values(address, port))
	if err != nil {
		return nil, line{}, failed("%s's client command: %v", a.client.Name, err)
	}
	p, err := process.Start(process.Command{Line: command, Dir: a.client.Dir, Log: a.log})
	if err != nil {
		return nil, line{}, err
	}
	limit := a.m.Timeout + time.Duration(a.seconds*float64(time.Second))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &failure{cell.DNF, fmt.Sprintf("%s's client did not finish within %s", a.client.Name, limit)})
	defer cancel()
	if err := p.Wait(ctx); ctx.Err() != nil {
		return nil, line{}, err
	} else if err != nil {
		return nil, line{}, a.ended(a.client.Name+"'s client", p)
	}
	return a.parse(p)
}

// parse reads the client's result out of what it printed; the client has ended.
func (a *attempt) parse(p *process.Process) (*process.Process, line, error) {
	var all strings.Builder
	var last line
	for {
		text, err := p.Next(context.Background())
		if err != nil {
			break
		}
		all.WriteString(text + "\n")
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && l.Event == "result" {
			last = l
		}
	}
	switch a.client.ClientResult() {
	case "iperf3":
		var err error
		if last, err = iperf3Line(all.String()); err != nil {
			return nil, last, failed("%s's JSON: %v", a.client.Name, err)
		}
	case "json":
		if last.Event == "" {
			return nil, last, failed("%s's client printed no result", a.client.Name)
		}
	}
	return p, last, nil
}
