// The server's side of the exchange: greet, grant within the limits, gather the data streams, run.

package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

// Limits are what the server allows; zero means no limit. What exceeds a number of streams or clients
// is refused, what exceeds a duration, a size or a rate is granted less.
type Limits struct {
	Clients  int           // runs at once
	Streams  int           // data streams of a run, over all its connections
	Duration time.Duration // omit and measured time together
	Bytes    uint64        // per direction
	Rate     float64       // bits per second, per direction
}

// A Server answers requests. It is safe for concurrent use; the fields are set before its first use.
type Server struct {
	Agent       string
	Token       []byte // if set, clients must prove that they know it
	Limits      Limits
	Clock       measure.Clock
	Environment map[string]string
	// Observer makes the observer of one run; it may be nil.
	Observer func(r *Run) Observer

	mu   sync.Mutex
	runs map[[16]byte]*Run
}

// A Run is one client's test, as the server sees it.
type Run struct {
	ID      [16]byte
	Client  transport.Info
	Request Request
	Grant   Grant
	Local   *Report
	Peer    *Report

	mu      sync.Mutex
	streams []transport.Stream
	missing int
	ready   chan struct{}
	over    chan struct{}
}

// Serve conducts one run on a control stream of session. It returns the run as far as it got; nil if
// none was granted. The error says why it is incomplete.
func (s *Server) Serve(ctx context.Context, session transport.Session, st transport.Stream) (*Run, error) {
	defer st.Close()
	ch := &channel{st: st}
	request, err := s.greet(ch)
	if err != nil {
		return nil, err
	}
	r, err := s.admit(ch, session, request)
	if err != nil {
		return nil, err
	}
	defer s.dismiss(r)
	e, err := s.gather(ch, r, session)
	if err != nil {
		_ = ch.send(TypeAbort, &Abort{Code: CodeStall, Message: err.Error()})
		return r, err
	}
	local, peer, err := e.play(ctx, false)
	r.Local, r.Peer = &local, peer
	return r, err
}

// greet says who we are and takes the request, if its version and token are right.
func (s *Server) greet(ch *channel) (Request, error) {
	var nonce [32]byte
	_, _ = rand.Read(nonce[:]) // never fails
	g := Greeting{Version: Version, Agent: s.Agent, Nonce: hex.EncodeToString(nonce[:]), Token: len(s.Token) > 0}
	var q Request
	if err := ch.send(TypeGreeting, g); err != nil {
		return q, err
	}
	if err := ch.expect(TypeRequest, &q, time.Now().Add(messageTimeout)); err != nil {
		return q, err
	}
	if q.Version != Version {
		return q, s.refuse(ch, &Abort{Code: CodeVersion,
			Message: fmt.Sprintf("the client (%s) speaks version %d of /muxperf, this server (%s) version %d", q.Agent, q.Version, s.Agent, Version),
			Hint:    "use the same muxperf at both ends, or --protocol /perf/1.0.0"})
	}
	if len(s.Token) > 0 && !hmac.Equal([]byte(q.Proof), []byte(proof(s.Token, g.Nonce))) {
		return q, s.refuse(ch, &Abort{Code: CodeToken, Message: "the token is wrong", Hint: "both ends need the same --token-file"})
	}
	return q, nil
}

// proof is what shows knowledge of a token without showing it.
func proof(token []byte, nonce string) string {
	mac := hmac.New(sha256.New, token)
	mac.Write([]byte(nonce))
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *Server) refuse(ch *channel, a *Abort) error {
	if err := ch.send(TypeRefusal, a); err != nil {
		return err
	}
	return fmt.Errorf("refused a client: %w", a)
}

// admit grants a request and registers the run, or refuses it.
func (s *Server) admit(ch *channel, session transport.Session, q Request) (*Run, error) {
	if err := q.Params.Validate(); err != nil {
		return nil, s.refuse(ch, &Abort{Code: CodeParams, Message: err.Error()})
	}
	params, limits := s.Limits.Apply(q.Params)
	n := params.Connections * params.Streams
	if s.Limits.Streams > 0 && n > s.Limits.Streams {
		return nil, s.refuse(ch, &Abort{Code: CodeLimit, Message: fmt.Sprintf("%d streams were asked for, the server allows %d", n, s.Limits.Streams),
			Hint: "ask for fewer with -P and --connections, or raise --max-streams on the server"})
	}
	if err := tune(session, params); err != nil {
		limits = append(limits, Limit{Name: "socket options", Asked: params.sockets(), Granted: "those of the system: " + err.Error()})
		params.SocketBuf, params.Congestion, params.NoDelayOff = 0, "", false
	}
	r := &Run{Client: session.Info(), Request: q, streams: make([]transport.Stream, n), missing: n,
		ready: make(chan struct{}), over: make(chan struct{})}
	_, _ = rand.Read(r.ID[:])
	r.Grant = Grant{Run: hex.EncodeToString(r.ID[:]), Agent: s.Agent, Params: params, Limits: limits}
	if !s.register(r) {
		return nil, s.refuse(ch, &Abort{Code: CodeLimit, Message: fmt.Sprintf("%d clients are being served, and the server allows no more", s.Limits.Clients),
			Hint: "try again later, or raise --max-clients on the server"})
	}
	if err := ch.send(TypeGrant, r.Grant); err != nil {
		s.dismiss(r)
		return nil, err
	}
	return r, nil
}

// tune gives a session's sockets the options that the client has given its own: a test of a congestion control or
// of a buffer is one of both ends, and what an end sends is up to its own.
func tune(session transport.Session, p Params) error {
	t, ok := session.(transport.SocketTuner)
	if !ok || p.SocketBuf == 0 && p.Congestion == "" && !p.NoDelayOff {
		return nil
	}
	return t.TuneSockets(transport.SocketOptions{Buffer: p.SocketBuf, Congestion: p.Congestion, Nagle: p.NoDelayOff})
}

func (s *Server) register(r *Run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[[16]byte]*Run{}
	}
	if s.Limits.Clients > 0 && len(s.runs) >= s.Limits.Clients {
		return false
	}
	s.runs[r.ID] = r
	return true
}

// dismiss forgets a run and lets go of its data streams.
func (s *Server) dismiss(r *Run) {
	s.mu.Lock()
	delete(s.runs, r.ID)
	s.mu.Unlock()
	close(r.over)
}

// ServeData hands a data stream to the run that its header names, and returns when the run is over.
// The stream is then closed.
func (s *Server) ServeData(ctx context.Context, session transport.Session, st transport.Stream) error {
	defer st.Close()
	if err := st.SetReadDeadline(time.Now().Add(messageTimeout)); err != nil {
		return err
	}
	h, err := ReadStreamHeader(st)
	if err != nil {
		return err
	}
	if err := st.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	s.mu.Lock()
	r := s.runs[h.Run]
	s.mu.Unlock()
	if r == nil {
		_ = st.Reset()
		return errors.New("a data stream of an unknown run")
	}
	if err := tune(session, r.Grant.Params); err != nil {
		_ = st.Reset()
		return fmt.Errorf("setting the socket options of a data stream: %w", err)
	}
	if err := r.join(h, st); err != nil {
		_ = st.Reset()
		return err
	}
	select {
	case <-r.over:
	case <-ctx.Done(): // play ends by the same context; wait for it to let go of the stream
		<-r.over
	}
	return nil
}

// join puts a stream in its place.
func (r *Run) join(h StreamHeader, st transport.Stream) error {
	p := r.Grant.Params
	if int64(h.Connection) >= int64(p.Connections) || int64(h.Stream) >= int64(p.Streams) {
		return fmt.Errorf("data stream %d of connection %d was not granted", h.Stream, h.Connection)
	}
	i := int(h.Connection)*p.Streams + int(h.Stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams[i] != nil {
		return fmt.Errorf("data stream %d of connection %d came twice", h.Stream, h.Connection)
	}
	r.streams[i] = st
	if r.missing--; r.missing == 0 {
		close(r.ready)
	}
	return nil
}

// gather waits for the data streams, tells the client, and waits for its start.
func (s *Server) gather(ch *channel, r *Run, session transport.Session) (*engine, error) {
	timer := time.NewTimer(4 * messageTimeout)
	defer timer.Stop()
	gone := make(chan error, 1)
	go func() { // the client says nothing before start; an end of the stream is its end
		gone <- ch.expect(TypeStart, &struct{}{}, time.Now().Add(5*messageTimeout))
	}()
	select {
	case <-r.ready:
	case err := <-gone:
		return nil, peerGone(fmt.Errorf("before its data streams arrived: %w", err))
	case <-timer.C:
		ch.interrupt()
		<-gone
		return nil, fmt.Errorf("%d of %d data streams did not arrive in time", r.missingNow(), len(r.streams))
	}
	if err := ch.send(TypeReady, struct{}{}); err != nil {
		ch.interrupt()
		<-gone
		return nil, err
	}
	if err := <-gone; err != nil {
		return nil, peerGone(err)
	}
	e := &engine{ch: ch, params: r.Grant.Params, run: r.ID, streams: r.streams, clock: s.Clock,
		send: r.Grant.Params.Direction != Upload, receive: r.Grant.Params.Direction != Download,
		tcpInfo: session.TCPInfo, environment: s.Environment, agent: s.Agent}
	if s.Observer != nil {
		e.observer = s.Observer(r)
	}
	return newEngine(e), nil
}

func (r *Run) missingNow() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing
}
