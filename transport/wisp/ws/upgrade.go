// The opening handshake (RFC 6455, section 4).

package ws

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// guid is the standard's.
const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// maxRequest bounds the bytes of a request's head.
const maxRequest = 16 << 10

func accept(key string) string {
	sum := sha1.Sum([]byte(key + guid))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// ErrStatus: the server answered the upgrade with another status than 101.
var ErrStatus = errors.New("the server refused the websocket")

// Dial asks for an upgrade on a connection; subprotocol may be empty. It returns the subprotocol that the
// server chose.
func Dial(w io.Writer, r *bufio.Reader, host, path, subprotocol string) (string, error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n", path, host, key)
	if subprotocol != "" {
		fmt.Fprintf(&b, "Sec-WebSocket-Protocol: %s\r\n", subprotocol)
	}
	b.WriteString("\r\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return "", fmt.Errorf("asking for a websocket: %w", err)
	}
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
	if err != nil {
		return "", fmt.Errorf("reading the answer to the upgrade: %w", unexpected(err))
	}
	switch {
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return "", fmt.Errorf("%w: HTTP status %s", ErrStatus, resp.Status)
	case !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") || resp.Header.Get("Sec-WebSocket-Accept") != accept(key):
		return "", fmt.Errorf("%w: its answer is not that of a websocket server", ErrStatus)
	}
	return resp.Header.Get("Sec-WebSocket-Protocol"), nil
}

// A Request is a client's wish to upgrade.
type Request struct {
	Path        string
	Subprotocol string // the first that the client offered; "" for none
	key         string
}

// ErrNoUpgrade: a request that does not ask for a websocket; it has been answered.
var ErrNoUpgrade = errors.New("the request asks for no websocket")

// ReadRequest reads the request of a client. One that asks for something else is answered and refused.
func ReadRequest(w io.Writer, r *bufio.Reader) (Request, error) {
	head, err := readHead(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "the request is too long, or none")
		return Request{}, fmt.Errorf("reading the upgrade: %w", unexpected(err))
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		refuse(w, http.StatusBadRequest, "this is not HTTP")
		return Request{}, fmt.Errorf("reading the upgrade: %w", unexpected(err))
	}
	out := Request{Path: req.URL.Path, key: req.Header.Get("Sec-WebSocket-Key")}
	first, _, _ := strings.Cut(req.Header.Get("Sec-WebSocket-Protocol"), ",")
	out.Subprotocol = strings.TrimSpace(first)
	nonce, keyErr := base64.StdEncoding.DecodeString(out.key)
	switch {
	case req.Method != http.MethodGet || !tokenIn(req.Header.Get("Connection"), "upgrade") || !strings.EqualFold(req.Header.Get("Upgrade"), "websocket"):
		refuse(w, http.StatusUpgradeRequired, "this is a Wisp server: it speaks WebSocket")
		return out, ErrNoUpgrade
	case req.Header.Get("Sec-WebSocket-Version") != "13" || keyErr != nil || len(nonce) != 16:
		refuse(w, http.StatusBadRequest, "a bad WebSocket key or version; 13 is spoken here")
		return out, fmt.Errorf("%w: bad key or version", ErrNoUpgrade)
	case !strings.HasSuffix(out.Path, "/"):
		refuse(w, http.StatusNotFound, "the path of a Wisp server ends with a slash")
		return out, fmt.Errorf("%w: path %q does not end with a slash", ErrNoUpgrade, out.Path)
	}
	return out, nil
}

// readHead reads up to the empty line and no further: what follows are frames already.
func readHead(r *bufio.Reader) ([]byte, error) {
	var head []byte
	for len(head) < maxRequest {
		line, err := r.ReadSlice('\n')
		head = append(head, line...)
		if err != nil {
			return nil, err
		}
		if len(line) <= 2 && len(bytes.TrimSpace(line)) == 0 {
			return head, nil
		}
	}
	return nil, errors.New("the head of the request is too long")
}

// tokenIn looks for a token in a list with commas.
func tokenIn(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(t), token) {
			return true
		}
	}
	return false
}

func refuse(w io.Writer, status int, text string) {
	extra := ""
	if status == http.StatusUpgradeRequired {
		extra = "Upgrade: websocket\r\n"
	}
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s\n",
		status, http.StatusText(status), extra, len(text)+1, text)
}

// Accept answers a request with 101, and with its first subprotocol if it offered any: browsers fail a
// handshake that chooses none.
func Accept(w io.Writer, q Request) error {
	sub := ""
	if q.Subprotocol != "" {
		sub = "Sec-WebSocket-Protocol: " + q.Subprotocol + "\r\n"
	}
	_, err := fmt.Fprintf(w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n", accept(q.key), sub)
	return err
}
