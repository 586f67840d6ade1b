// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// WebSocketPath is where a server accepts tunnel connections as WebSockets.
const WebSocketPath = "/tunnel"

// webSocketProtocol is the subprotocol: the bytes of a native connection in binary messages, whose
// boundaries mean nothing.
const webSocketProtocol = "fairlead.1"

// webSocket carries the multiplexer's bytes. Like muxConn, it allows one reader and one writer at a
// time. Deadlines are set, and it is closed, by the connection below it.
type webSocket struct {
	conn    *websocket.Conn
	message io.Reader // message is what is left of the message being read, or nil.
}

func newWebSocket(c *websocket.Conn) *webSocket {
	c.SetReadLimit(-1) // messages are not buffered
	return &webSocket{conn: c}
}

// Read reads the bytes of binary messages. The peer's Close frame ends it with io.EOF, an end
// without one with io.ErrUnexpectedEOF.
func (w *webSocket) Read(p []byte) (int, error) {
	for {
		if w.message == nil {
			kind, r, err := w.conn.Reader(context.Background())
			switch {
			case websocket.CloseStatus(err) == websocket.StatusNormalClosure:
				return 0, io.EOF
			case errors.Is(err, io.EOF):
				return 0, io.ErrUnexpectedEOF
			case err != nil:
				return 0, err
			case kind != websocket.MessageBinary:
				return 0, errors.New("the peer sent text over the WebSocket")
			}
			w.message = r
		}
		n, err := w.message.Read(p)
		if errors.Is(err, io.EOF) {
			w.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// writeFrames writes head and then payload, which may be nil, each as a message.
func (w *webSocket) writeFrames(head, payload []byte) error {
	err := w.conn.Write(context.Background(), websocket.MessageBinary, head)
	if err != nil || len(payload) == 0 {
		return err
	}
	return w.conn.Write(context.Background(), websocket.MessageBinary, payload)
}

// openWebSocket asks for a WebSocket over a connection with the server that has the host.
func openWebSocket(ctx context.Context, conn *BatchConn, host string) (*webSocket, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	once := &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		},
		// a redirect could lead to a server without TLS
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	//nolint:bodyclose // Dial closes it
	ws, _, err := websocket.Dial(ctx, "wss://"+host+WebSocketPath, &websocket.DialOptions{HTTPClient: once,
		Subprotocols: []string{webSocketProtocol}})
	if err != nil {
		return nil, err
	}
	if ws.Subprotocol() != webSocketProtocol {
		return nil, errors.New("the answer does not choose the subprotocol " + webSocketProtocol)
	}
	return newWebSocket(ws), nil
}

// ErrNoWebSocket means that a request was answered, because it did not ask for a WebSocket.
var ErrNoWebSocket = errors.New("the request does not ask for a WebSocket")

// ServeWebSocket serves a request for WebSocketPath as ServeConn does a connection, a *tls.Conn here,
// which it closes. After ErrNoWebSocket, the connection is still the HTTP server's.
func (s *Server) ServeWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	h := &hijacker{ResponseWriter: w}
	c, err := websocket.Accept(h, r, &websocket.AcceptOptions{Subprotocols: []string{webSocketProtocol}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWebSocket, err)
	}
	if c.Subprotocol() != webSocketProtocol {
		_ = c.CloseNow()
		return errors.New("the WebSocket's subprotocol is not " + webSocketProtocol)
	}
	return s.serveConn(ctx, h.conn, newWebSocket(c))
}

// hijacker keeps the connection that a handler takes over.
type hijacker struct {
	http.ResponseWriter
	conn *tls.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	var isTLS bool
	if h.conn, isTLS = conn.(*tls.Conn); !isTLS {
		_ = conn.Close()
		return nil, nil, errors.New("the connection has no TLS")
	}
	return conn, buffers, nil
}
