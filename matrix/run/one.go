// One run of one cell: start the server, wait until it answers, run the client, compare what both ends say,
// end both.

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	readyTimeout  = 20 * time.Second // for a server to answer
	resultTimeout = 5 * time.Second  // for its result after the client's
	stopGrace     = 3 * time.Second
	portTries     = 4
	suspectFactor = 1.5 // faster than raw TCP by more than this is no measurement
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
		t, err := NewTarget(a.key.Mode == "echo")
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
	if err := a.receiversTruth(&rep, server); err != nil {
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
		p, err = process.Start(process.Command{Line: command, Dir: a.server.Dir, Log: a.log})
		if err != nil {
			return nil, "", 0, err
		}
		address, err = a.ready(ctx, p, port)
		if err == nil {
			return p, address, port, nil
		}
		p.Stop(stopGrace)
		if !inUse(a.log) {
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

// inUse reports whether a server complained about its port.
func inUse(log string) bool {
	l := strings.ToLower(process.LastLine(log))
	return strings.Contains(l, "in use") || strings.Contains(l, "eaddrinuse")
}

// ready waits for the server's line, or until its port answers.
func (a *attempt) ready(ctx context.Context, p *process.Process, port int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	byLine := a.server.Server.Ready == "json"
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case text, ok := <-p.Lines():
			if !ok {
				<-p.Done()
				return "", a.ended(a.server.Name+"'s server", p)
			}
			var l line
			if byLine && json.Unmarshal([]byte(text), &l) == nil && l.Event == "ready" {
				if isWisp(a.key.Stack) && !strings.HasPrefix(l.Address, "ws") {
					return a.defaultAddress(port), nil // one port that speaks more than Wisp
				}
				return l.Address, nil
			}
		case <-poll.C:
			if byLine {
				continue
			}
			if conn, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), time.Second); err == nil {
				conn.Close()
				return a.defaultAddress(port), nil
			}
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return "", err
			}
			return "", &failure{cell.DNF, fmt.Sprintf("%s's server did not answer within %s", a.server.Name, readyTimeout)}
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

// parse reads the client's result out of what it printed.
func (a *attempt) parse(p *process.Process) (*process.Process, line, error) {
	var all strings.Builder
	var last line
	for text := range p.Lines() {
		all.WriteString(text + "\n")
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && l.Event == "result" {
			last = l
		}
	}
	switch a.client.Result {
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

// iperf3Line takes the figures out of iperf3's JSON: sent by the client, received by the server.
func iperf3Line(text string) (line, error) {
	var doc struct {
		Error     string
		Intervals []struct {
			Sum struct {
				End   float64
				Bytes uint64
			}
		}
		End struct {
			SumSent     struct{ Bytes uint64 } `json:"sum_sent"`
			SumReceived struct {
				Bytes   uint64
				Seconds float64
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return line{}, err
	}
	if doc.Error != "" {
		return line{}, errors.New(doc.Error)
	}
	l := line{Event: "result", Protocol: "iperf3", Sent: doc.End.SumSent.Bytes, Received: doc.End.SumReceived.Bytes, Seconds: doc.End.SumReceived.Seconds}
	for _, iv := range doc.Intervals {
		l.Intervals = append(l.Intervals, cell.Interval{End: iv.Sum.End, Bytes: iv.Sum.Bytes})
	}
	return l, nil
}

// receiversTruth finds what arrived, and insists that both ends agree where both can tell.
func (a *attempt) receiversTruth(rep *cell.Rep, server *process.Process) error {
	switch {
	case a.target != nil:
		return a.truthOfTarget(rep)
	case a.client.Result == "iperf3":
		// iperf3 brings both figures itself; what is still in its buffers at the end is not received.
		rep.Received, rep.Returned, rep.MeasuredAt = rep.Returned, 0, "receiver"
		rep.Goodput = rate(rep.Received, rep.Seconds)
		return nil
	case a.server.Result == "none":
		rep.Received = rep.Sent
		rep.Goodput = rate(rep.Sent, rep.Seconds)
		return nil
	}
	received, seconds, err := a.serverResult(rep.Sent, server)
	if err != nil {
		return err
	}
	rep.Received = received
	if a.client.Result != "none" && received != rep.Sent {
		return failed("%s sent %d bytes, %s received %d", a.client.Name, rep.Sent, a.server.Name, received)
	}
	if seconds > 0 {
		rep.Seconds, rep.MeasuredAt = seconds, "receiver"
	}
	rep.Goodput = rate(received, rep.Seconds)
	return nil
}

func rate(bytes uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) * 8 / seconds
}

// serverResult sums the server's result lines, one for each stream or one for all, until they account for
// what was sent or time is up.
func (a *attempt) serverResult(sent uint64, server *process.Process) (received uint64, seconds float64, err error) {
	timer := time.NewTimer(resultTimeout)
	defer timer.Stop()
	for {
		select {
		case text, ok := <-server.Lines():
			if !ok {
				<-server.Done()
				return 0, 0, a.ended(a.server.Name+"'s server", server)
			}
			var l line
			if json.Unmarshal([]byte(text), &l) != nil || l.Event != "result" || l.Received == 0 {
				continue
			}
			received += l.Received
			seconds = max(seconds, l.Seconds)
			if received >= sent && sent > 0 {
				return received, seconds, nil
			}
		case <-timer.C:
			return received, seconds, nil
		}
	}
}

// truthOfTarget waits until the target has what the client says it sent, and compares.
func (a *attempt) truthOfTarget(rep *cell.Rep) error {
	deadline := time.Now().Add(resultTimeout)
	for {
		bytes, took := a.target.Counted()
		if bytes >= rep.Sent || time.Now().After(deadline) {
			rep.Received, rep.Seconds, rep.MeasuredAt = bytes, took.Seconds(), "receiver"
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	rep.Goodput = rate(rep.Received, rep.Seconds)
	if a.client.Result != "none" && rep.Received != rep.Sent {
		return failed("%s sent %d bytes through %s, %d arrived", a.client.Name, rep.Sent, a.server.Name, rep.Received)
	}
	if a.key.Mode == "echo" && a.client.Result != "none" && rep.Returned != rep.Sent {
		return failed("%s sent %d bytes, %d came back", a.client.Name, rep.Sent, rep.Returned)
	}
	return nil
}

// plausible refuses numbers that cannot be.
func (a *attempt) plausible(rep *cell.Rep) error {
	suspect := func(format string, v ...any) error { return &failure{cell.Suspect, fmt.Sprintf(format, v...)} }
	switch {
	case rep.Received == 0:
		return suspect("nothing was moved")
	case rep.Seconds < 100e-6:
		return suspect("it took %.0f us, less than a round trip", rep.Seconds*1e6)
	case rep.Seconds < 0.5*a.seconds:
		return suspect("it measured %.2f s of the %.2f s that it had", rep.Seconds, a.seconds)
	case a.key.Stack == "plaintext+none": // this is raw TCP
		return nil
	case a.m.RawTCP > 0 && rep.Goodput > suspectFactor*a.m.RawTCP && rep.Goodput > suspectFactor*a.m.rawAgain():
		return suspect("%.1f Gbit/s is faster than raw TCP here (%.1f)", rep.Goodput/1e9, a.m.RawTCP/1e9)
	}
	return nil
}
