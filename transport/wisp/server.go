// The server: upgrade, handshake of either version, built-in destinations, and those that a proxy reaches.

package wisp

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"muxperf/transport"
	"muxperf/transport/wisp/proxy"
	"muxperf/transport/wisp/ws"
)

// ServerConfig is how a server serves; the zero value serves the built-in destinations only.
type ServerConfig struct {
	Allow      proxy.Rules       // destinations that are dialed; none by default
	Credit     int               // packets that a client may send on a stream before it is told to go on; 0 means 128
	Payload    int               // most bytes of one DATA that we send; 0 means 65,523
	MaxMessage int               // most bytes of one that we take; 0 means 1 MiB
	MaxStreams int               // of one connection; 0 means 1,024
	MOTD       string            // told to clients of version 2
	Passwords  map[string]string // user to password; empty asks for none
	Version    int               // 1 serves version 1 only; 0 both
	Budget     *transport.Budget // of all connections of the process; nil has no bound
}

// Server reads the upgrade on conn and runs the handshake, within ctx.
func Server(ctx context.Context, conn net.Conn, cfg ServerConfig) (transport.Muxer, error) {
	undo := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c, err := server(conn, cfg)
	if !undo() {
		if c != nil {
			c.end(net.ErrClosed)
			c.wg.Wait()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func server(conn net.Conn, cfg ServerConfig) (*Conn, error) {
	r := bufio.NewReaderSize(conn, readBuffer)
	req, err := ws.ReadRequest(conn, r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrHandshake, err)
	}
	if cfg.Version == 1 {
		req.Subprotocol = ""
	}
	if err := ws.Accept(conn, req); err != nil {
		return nil, err
	}
	c := newConn(conn, r, false, "", or(cfg.MaxMessage, defaultMaxMessage))
	c.credit, c.payload = or(cfg.Credit, defaultCredit), or(cfg.Payload, defaultPayload)
	c.limits.streams, c.limits.budget = or(cfg.MaxStreams, defaultMaxStreams), cfg.Budget
	c.version = 1
	if req.Subprotocol != "" {
		c.version = 2
	}
	p := &proxying{c: c, rules: cfg.Allow}
	c.proxy = p.open
	if err := c.serverHandshake(cfg); err != nil {
		var broken *ws.ProtocolError
		if errors.As(err, &broken) {
			_ = c.w.raw(ws.Close(broken.Code, false))
		}
		c.w.drain(time.Second)
		c.w.close()
		return nil, fmt.Errorf("%w: %w", transport.ErrHandshake, err)
	}
	c.start()
	return c, nil
}

func or(v, d int) int {
	if v > 0 {
		return v
	}
	return d
}

// serverHandshake exchanges INFO in version 2, and grants the first credit.
func (c *Conn) serverHandshake(cfg ServerConfig) error {
	if c.version == 1 && len(cfg.Passwords) > 0 {
		_ = c.w.packet(typeClose, 0, []byte{byte(ReasonCredentials)}, nil)
		return fmt.Errorf("%w: a client of version 1 has no way to give a password", transport.ErrRefused)
	}
	if c.version == 2 {
		if err := c.exchangeInfo(cfg); err != nil {
			return err
		}
	}
	return c.w.packet(typeContinue, 0, binary.LittleEndian.AppendUint32(nil, uint32(c.credit)), nil)
}

// exchangeInfo says what we can, and takes what the client can.
func (c *Conn) exchangeInfo(cfg ServerConfig) error {
	ours := info{major: 2, extensions: map[byte][]byte{extConfirm: nil}}
	if len(cfg.Allow) > 0 {
		ours.extensions[extUDP] = nil // built-in destinations are TCP only
	}
	if cfg.MOTD != "" {
		ours.extensions[extMOTD] = []byte(cfg.MOTD)
	}
	if len(cfg.Passwords) > 0 {
		ours.extensions[extPassword] = []byte{1}
	}
	if err := c.w.packet(typeInfo, 0, ours.append(nil), nil); err != nil {
		return err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(infoTimeout)); err != nil {
		return err
	}
	p, err := c.r.Next(getBuffer(), growBuffer)
	defer func() { putBuffer(p) }()
	if err != nil {
		return fmt.Errorf("waiting for the client's INFO: %w", err)
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	refuse := func(r Reason, err error) error {
		_ = c.w.packet(typeClose, 0, []byte{byte(r)}, nil)
		return err
	}
	kind, id, body, err := parseHeader(p)
	switch {
	case err == nil && kind == typeClose && id == 0:
		return fmt.Errorf("the client refused: %s", Reason(firstByte(body)))
	case err != nil || kind != typeInfo || id != 0:
		return refuse(ReasonInvalid, fmt.Errorf("%w: the client did not answer with INFO", errPacket))
	}
	theirs, err := parseInfo(body)
	if err != nil {
		return refuse(ReasonInvalid, err)
	}
	_, c.confirm = theirs.extensions[extConfirm]
	if len(cfg.Passwords) == 0 {
		return nil
	}
	meta, given := theirs.extensions[extPassword]
	if !given {
		return refuse(ReasonCredentials, fmt.Errorf("%w: the client gave no password", transport.ErrRefused))
	}
	user, password, ok := parsePassword(meta)
	want, known := cfg.Passwords[user]
	if right := subtle.ConstantTimeCompare([]byte(want), []byte(password)) == 1; !ok || !known || !right {
		return refuse(ReasonPassword, fmt.Errorf("%w: wrong user or password", transport.ErrRefused))
	}
	return nil
}

// connected serves a CONNECT.
func (c *Conn) connected(id uint32, body []byte) {
	dest, err := parseConnect(body)
	if err != nil || id == 0 {
		c.reject(id, ReasonInvalid)
		return
	}
	c.mu.Lock()
	full, taken := len(c.streams) >= c.limits.streams, c.streams[id] != nil
	c.mu.Unlock()
	switch {
	case taken: // the stream that has the id is not to suffer
		return
	case full:
		c.reject(id, ReasonThrottled)
		return
	}
	s := newStream(c, id, dest)
	if !c.add(s) {
		return
	}
	if dest.host != InternalHost {
		c.proxy(s)
		return
	}
	if dest.kind != streamTCP || !builtIn(dest.port) {
		s.abort(ReasonBlocked, transport.ErrRefused)
		return
	}
	select {
	case c.accepted <- s:
		s.confirmOpen()
	default:
		s.abort(ReasonThrottled, transport.ErrRefused)
	}
}

func builtIn(port int) bool {
	return port == PortEcho || port == PortDiscard || port == PortChargen || port == PortMuxperf
}

// reject answers a CONNECT for which no stream was made.
func (c *Conn) reject(id uint32, reason Reason) {
	_ = c.w.packet(typeClose, id, []byte{byte(reason)}, c.done)
}

// confirmOpen tells a client that asked for it that the stream is open.
func (s *Stream) confirmOpen() {
	if s.c.confirm {
		_ = s.c.w.packet(typeContinue, s.id, binary.LittleEndian.AppendUint32(nil, uint32(s.c.credit)), s.c.done)
	}
}
