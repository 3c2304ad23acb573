package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"muxperf/transport"
)

// A scripted stream says what it was given and then ends; what is written to it goes nowhere.
type scripted struct{ *bytes.Reader }

func (scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (scripted) Close() error                     { return nil }
func (scripted) CloseWrite() error                { return nil }
func (scripted) Reset() error                     { return nil }
func (scripted) SetDeadline(time.Time) error      { return nil }
func (scripted) SetReadDeadline(time.Time) error  { return nil }
func (scripted) SetWriteDeadline(time.Time) error { return nil }
func (scripted) Protocol() string                 { return "" }

// A lone session has no streams but those that the test makes: it opens scripted ones.
type lone struct{ script []byte }

func (l lone) Open(context.Context, string) (transport.Stream, error) {
	return scripted{bytes.NewReader(l.script)}, nil
}
func (lone) Accept(context.Context) (transport.Stream, error) { return nil, io.EOF }
func (lone) Close() error                                     { return nil }
func (lone) Info() transport.Info                             { return transport.Info{} }
func (lone) TCPInfo() []transport.TCPInfo                     { return nil }

// message is a frame of the exchange.
func message(f *testing.F, kind Type, v any) []byte {
	f.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	if err := (&channel{st: writeOnly{&b}}).send(kind, json.RawMessage(body)); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}

type writeOnly struct{ w io.Writer }

func (writeOnly) Read([]byte) (int, error)         { return 0, io.EOF }
func (w writeOnly) Write(b []byte) (int, error)    { return w.w.Write(b) }
func (writeOnly) Close() error                     { return nil }
func (writeOnly) CloseWrite() error                { return nil }
func (writeOnly) Reset() error                     { return nil }
func (writeOnly) SetDeadline(time.Time) error      { return nil }
func (writeOnly) SetReadDeadline(time.Time) error  { return nil }
func (writeOnly) SetWriteDeadline(time.Time) error { return nil }
func (writeOnly) Protocol() string                 { return "" }

// FuzzServe plays a whole client, in whatever order of whatever messages, with data streams in between: the server
// ends each run with an error or in order, and is ready for the next.
func FuzzServe(f *testing.F) {
	p := Params{Test: "flood", Direction: Upload, Bytes: 100, Block: 10, Connections: 1, Streams: 1, Stall: time.Second}
	request := message(f, TypeRequest, Request{Version: Version, Params: p})
	start := message(f, TypeStart, struct{}{})
	f.Add(request, []byte("payload"))
	f.Add(append(append(bytes.Clone(request), start...), message(f, TypeDone, Done{Sent: []uint64{100}})...), make([]byte, 124))
	f.Add(message(f, TypeAbort, Abort{Code: CodeFailed, Message: "no"}), []byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte{1})
	f.Fuzz(func(t *testing.T, control, data []byte) {
		s := &Server{Agent: "test", Clock: time.Now, Limits: Limits{Clients: 1, Streams: 4, Duration: 10 * time.Millisecond, Bytes: 1000}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = s.ServeData(ctx, lone{}, scripted{bytes.NewReader(data)})
		_, _ = s.Serve(ctx, lone{}, scripted{bytes.NewReader(control)})
		if ctx.Err() != nil {
			t.Fatal("it waited for a minute for a client that had ended")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.runs) != 0 {
			t.Fatalf("%d runs are left of a client that has ended", len(s.runs))
		}
	})
}

// FuzzClient plays a whole server likewise.
func FuzzClient(f *testing.F) {
	greeting := message(f, TypeGreeting, Greeting{Version: Version, Agent: "x", Nonce: "00"})
	f.Add(greeting)
	f.Add(append(bytes.Clone(greeting), message(f, TypeRefusal, Abort{Code: CodeLimit, Message: "full"})...))
	grant := Grant{Run: "00112233445566778899aabbccddeeff", Params: Params{Test: "flood", Direction: Upload, Bytes: 100, Block: 10, Connections: 1, Streams: 1, Stall: time.Second}}
	whole := append(append(bytes.Clone(greeting), message(f, TypeGrant, grant)...), message(f, TypeReady, struct{}{})...)
	f.Add(append(whole, message(f, TypeReport, Report{})...))
	f.Fuzz(func(t *testing.T, script []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := Params{Test: "flood", Direction: Upload, Bytes: 100, Block: 10, Connections: 1, Streams: 1, Stall: time.Second}
		_, err := Client{Clock: time.Now}.Run(ctx, []transport.Session{lone{script}}, p)
		if ctx.Err() != nil {
			t.Fatalf("it waited for a minute for a server that had ended: %v", err)
		}
	})
}
