// The client's side of the exchange: ask, open the data streams, start, run.

package control

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"muxperf/measure"
	"muxperf/protocol"
	"muxperf/transport"
)

// openAtOnce bounds how many data streams are opened at the same time.
const openAtOnce = 64

// A Client runs tests on sessions that it is given.
type Client struct {
	Agent    string // program and version, told to the server
	Token    []byte // shared secret, if the server wants one
	Clock    measure.Clock
	Observer Observer
	// Granted is told what the server allows, before the payload starts; it may be nil.
	Granted func(Grant)
	// Environment goes into our report.
	Environment map[string]string
}

// An Outcome is what a run gave, as far as it got.
type Outcome struct {
	Grant  Grant
	Local  *Report       // this end's; nil if the payload never started
	Peer   *Report       // the other end's; nil if it did not come
	Stream time.Duration // to open the first stream and agree on its protocol
}

// Run asks the peer for a test with params and runs it on the sessions, params.Connections of them.
// The outcome holds what was measured also when the error says that it is incomplete. The error
// wraps transport.ErrProtocol if the peer does not speak the exchange.
func (c Client) Run(ctx context.Context, sessions []transport.Session, params Params) (Outcome, error) {
	began := c.Clock()
	st, err := sessions[0].Open(ctx, protocol.Control)
	if err != nil {
		return Outcome{}, err
	}
	defer st.Close()
	out := Outcome{Stream: c.Clock().Sub(began)}
	ch := &channel{st: st}
	stop := context.AfterFunc(ctx, ch.interrupt)
	e, err := c.prepare(ctx, ch, sessions, params, &out)
	stop()
	if e != nil {
		defer closeStreams(e.streams)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return out, err
	}
	local, peer, err := e.play(ctx, true)
	out.Local, out.Peer = &local, peer
	return out, err
}

// prepare does everything up to the start. The engine is not nil if data streams were opened.
func (c Client) prepare(ctx context.Context, ch *channel, sessions []transport.Session, params Params, out *Outcome) (*engine, error) {
	if err := c.ask(ch, params, &out.Grant); err != nil {
		return nil, err
	}
	if c.Granted != nil {
		c.Granted(out.Grant)
	}
	params = out.Grant.Params
	run, err := parseRun(out.Grant.Run)
	if err != nil {
		return nil, err
	}
	streams, err := openData(ctx, sessions, run, params.Streams)
	e := newEngine(&engine{
		ch: ch, params: params, run: run, streams: streams, clock: c.Clock, observer: c.Observer,
		send:        params.Direction != Download,
		receive:     params.Direction != Upload,
		tcpInfo:     func() []transport.TCPInfo { return tcpInfos(sessions) },
		environment: c.Environment, agent: c.Agent,
	})
	if err != nil {
		return e, err
	}
	if err := ch.expect(TypeReady, &struct{}{}, time.Now().Add(messageTimeout)); err != nil {
		return e, err
	}
	return e, ch.send(TypeStart, struct{}{})
}

// ask sends the request and waits for the grant.
func (c Client) ask(ch *channel, params Params, grant *Grant) error {
	deadline := time.Now().Add(messageTimeout)
	var greeting Greeting
	if err := ch.expect(TypeGreeting, &greeting, deadline); err != nil {
		return err
	}
	if greeting.Version != Version {
		return &Abort{Code: CodeVersion,
			Message: fmt.Sprintf("the server (%s) speaks version %d of /muxperf, this client version %d", greeting.Agent, greeting.Version, Version),
			Hint:    "use the same muxperf at both ends, or --protocol /perf/1.0.0"}
	}
	if greeting.Token && len(c.Token) == 0 {
		return &Abort{Code: CodeToken, Message: "the server wants a token", Hint: "give the file that holds it with --token-file"}
	}
	request := Request{Version: Version, Agent: c.Agent, Params: params}
	if greeting.Token {
		request.Proof = proof(c.Token, greeting.Nonce)
	}
	if err := ch.send(TypeRequest, request); err != nil {
		return err
	}
	return ch.expect(TypeGrant, grant, time.Now().Add(messageTimeout))
}

// parseRun reads the run id of a grant.
func parseRun(s string) (run [16]byte, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(run) {
		return run, fmt.Errorf("%w: run id %q", ErrWire, s)
	}
	return [16]byte(b), nil
}

// openData opens n data streams on each session, and names each to the server. What was opened is
// returned also with an error.
func openData(ctx context.Context, sessions []transport.Session, run [16]byte, n int) ([]transport.Stream, error) {
	streams := make([]transport.Stream, len(sessions)*n)
	ctx, cancel := context.WithTimeoutCause(ctx, 4*messageTimeout, errors.New("the data streams could not be opened in time"))
	defer cancel()
	slots := make(chan struct{}, openAtOnce)
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for i := range streams {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			st, err := openOne(ctx, sessions[i/n], StreamHeader{Run: run, Connection: uint32(i / n), Stream: uint32(i % n)})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if failed == nil {
					failed = fmt.Errorf("opening data stream %d of %d: %w", i+1, len(streams), err)
				}
				cancel()
				return
			}
			streams[i] = st
		})
	}
	wg.Wait()
	if failed == nil {
		failed = context.Cause(ctx)
	}
	if failed != nil {
		return compact(streams), failed
	}
	return streams, nil
}

// openOne opens a data stream and writes its header.
func openOne(ctx context.Context, s transport.Session, h StreamHeader) (transport.Stream, error) {
	st, err := s.Open(ctx, protocol.Data)
	if err != nil {
		return nil, err
	}
	if _, err := st.Write(h.Append(nil)); err != nil {
		_ = st.Reset()
		return nil, err
	}
	return st, nil
}

// compact drops the streams that were not opened.
func compact(streams []transport.Stream) []transport.Stream {
	var out []transport.Stream
	for _, st := range streams {
		if st != nil {
			out = append(out, st)
		}
	}
	return out
}

// closeStreams ends the data streams. The peer has read them to the agreed byte; on one that it has
// not, there is nothing left to lose.
func closeStreams(streams []transport.Stream) {
	for _, st := range streams {
		if err := st.Close(); err != nil && !errors.Is(err, io.EOF) {
			_ = st.Reset()
		}
	}
}

func tcpInfos(sessions []transport.Session) []transport.TCPInfo {
	var out []transport.TCPInfo
	for _, s := range sessions {
		out = append(out, s.TCPInfo()...)
	}
	return out
}
