// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Limits of reads from clients.
const (
	clientIdle      = 5 * time.Minute
	maxHTTP2Streams = 250
	// receive window of an HTTP/2 stream and of its connection: an upload that is not read does not
	// block the others
	uploadBuffer     = 1 << 20
	connUploadBuffer = 16 << 20
)

// statusClientGone is the status recorded for a request whose client left before the answer.
const statusClientGone = 499

type connKey struct{}

func (e *Edge) newHTTPServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:                      http.HandlerFunc(e.serveConnRequest),
		ReadHeaderTimeout:            clientIdle, // a head that has begun has framing.HeadTimeout
		IdleTimeout:                  clientIdle,
		MaxHeaderBytes:               framing.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is the upstream's to answer
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxHTTP2Streams, MaxReadFrameSize: framing.MaxFrameSize,
			MaxReceiveBufferPerStream: uploadBuffer, MaxReceiveBufferPerConnection: connUploadBuffer,
		},
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			cc, _ := clientConnOf(c)
			if cc == nil {
				return ctx
			}
			return &connContext{Context: cc.ctx, server: ctx, conn: cc}
		},
		ConnState: func(c net.Conn, st http.ConnState) {
			if cc, framed := clientConnOf(c); cc != nil {
				framed.SetState(st)
				cc.setState(st)
			}
		},
	}
}

// clientConnOf returns the clientConn below a connection of the HTTP server, nil when there is
// none.
func clientConnOf(c net.Conn) (*clientConn, *framing.Conn) {
	framed, ok := c.(*framing.Conn)
	if !ok {
		return nil, nil
	}
	cc, _ := framed.Conn.(*clientConn)
	return cc, framed
}

// connContext is the base context of a connection's requests: it is done with the connection's
// context and has the values of the HTTP server's.
type connContext struct {
	context.Context
	server context.Context
	conn   *clientConn
}

// Value returns the connection, or a value of the HTTP server's context.
func (c *connContext) Value(key any) any {
	if _, ok := key.(connKey); ok {
		return c.conn
	}
	if v := c.server.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// serveHTTP accepts the client and passes the connection to the HTTP server. The caller has checked
// the client.
func (e *Edge) serveHTTP(ctx context.Context, c Client, ep *account.Endpoint, info ClientInfo) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	cc := newClientConn(inner, c, ep, info)
	if err := c.Accept(); err != nil {
		_ = c.Close()
		return
	}
	framed := framing.New(cc, framing.Options{
		Protocol: framing.HTTP1OrHTTP2, StartTimeout: clientIdle, HeadTimeout: framing.HeadTimeout,
	})
	if !e.conns.Put(framed) {
		_ = c.Reset(tunnel.RefusedDraining)
		return
	}
	select {
	case <-cc.serverDone:
	case <-ctx.Done():
		cc.abort()
		<-cc.serverDone
	}
	cc.upstreams.Close()
	cc.linger()
}

// serveConnRequest serves one request of a connection of Serve. The connection has the URL; the
// agent is chosen for every request.
func (e *Edge) serveConnRequest(w http.ResponseWriter, r *http.Request) {
	cc, ok := r.Context().Value(connKey{}).(*clientConn)
	if !ok {
		panic("edge: a request without its connection")
	}
	x := e.newExchange(w, r, cc.endpoint, &cc.info)
	x.conn = cc
	x.run()
	if r.Close || w.Header().Get("Connection") == "close" {
		cc.lastWrites.Store(true)
	}
}

// ServeHTTP serves one request to the endpoint that another HTTP server has parsed. An answer that
// breaks off panics with http.ErrAbortHandler; the end of r's context aborts what the request
// caused. Drain waits for it.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, info ClientInfo) {
	e.connStarted()
	defer e.connEnded()
	e.newExchange(w, r, ep, &info).run()
}
