// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
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

// exchange is one request and its answer.
type exchange struct {
	edge         *Edge
	conn         *clientConn // nil on a connection of another server
	endpoint     *account.Endpoint
	info         *ClientInfo
	w            http.ResponseWriter
	policyWriter http.ResponseWriter // w, or the writer that the policies wrap it in
	r            *http.Request
	body         *clientBody
	host         string // Host header of the client's request
	route        route
	replayBuffer *replayBuffer // buffers body, once it is sent
	target       target        // the target that serves the request, or is being tried
	stream       *agentStream  // the answer's stream; nil where it is not known, or shared
	start        time.Time
	status       int
	code         account.Code // why an error page answered; empty when the upstream answered
	record       RequestRecord
}

// serveConnRequest serves one request of a connection of Serve. The connection has the URL; the
// agent is chosen for every request.
func (e *Edge) serveConnRequest(w http.ResponseWriter, r *http.Request) {
	cc, ok := r.Context().Value(connKey{}).(*clientConn)
	if !ok {
		panic("edge: a request without its connection")
	}
	x := &exchange{edge: e, conn: cc, endpoint: cc.endpoint, info: &cc.info, w: w, r: r}
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
	x := &exchange{edge: e, endpoint: ep, info: &info, w: w, r: r}
	x.run()
}

func (x *exchange) run() {
	x.start = time.Now()
	x.startRecord()
	completed := false
	defer func() { x.finish(completed) }()
	x.dispatch()
	completed = true
}

func (x *exchange) dispatch() {
	if x.r.ContentLength != 0 {
		x.body = &clientBody{ReadCloser: x.r.Body, record: &x.record, received: x.r, trailer: x.r.Trailer}
		if x.body.trailer == nil && x.r.ContentLength < 0 {
			x.body.trailer = http.Header{} // for trailers that are not announced
		}
		x.r = x.r.WithContext(x.r.Context()) // a copy: the server checks the body of its own
		x.r.Body, x.r.Trailer = x.body, x.body.trailer
	}
	if x.conn != nil {
		if refused := framing.CheckRequest(x.r); refused != nil {
			x.refuse(refused)
			return
		}
	}
	if x.r.ProtoMajor == 1 {
		_ = http.NewResponseController(x.w).EnableFullDuplex() // never fails on HTTP/1 of net/http
		dropUpgradeToHTTP2(x.r.Header)
	}
	maps.DeleteFunc(x.r.Header, isReservedHeader)
	sanitizeTrailer(x.r.Trailer)
	x.setForwardingHeaders()
	defer func() { x.target.release() }()
	x.handleRequest(x.w, x.r, x.endpoint, 0)
}

// refuse answers a request that CheckRequest refuses. What follows it on an HTTP/1 connection is not
// read as another request.
func (x *exchange) refuse(refused *account.Error) {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
	x.writeError(refused.Code, refused.Msg)
}

// proxy proxies the request to the targets of its route.
func (x *exchange) proxy(w http.ResponseWriter, r *http.Request) {
	x.policyWriter = w
	proxy := httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      x,
		ModifyResponse: x.modifyResponse,
		ErrorHandler:   x.fail,
		BufferPool:     buffers,
		ErrorLog:       x.edge.http.ErrorLog,
	}
	proxy.ServeHTTP(w, r)
}

// modifyResponse prepares the upstream's answer for the client.
func (x *exchange) modifyResponse(res *http.Response) error {
	if err := checkAnswer(res); err != nil {
		return err
	}
	x.status = res.StatusCode
	dropLoginCookies(res.Header)
	maps.DeleteFunc(res.Header, isReservedHeader)
	maps.DeleteFunc(res.Trailer, isReservedHeader) // the names; the values come at the end of the body
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.reportToAgent() // the upgraded connection may last long
		x.reportToForwarder()
		return nil
	}
	x.setConnectionClose()
	if _, ok := res.Header["Content-Type"]; !ok {
		x.policyWriter.Header()["Content-Type"] = nil // net/http would guess one
	}
	x.prepareBody(res)
	return nil
}

// setConnectionClose sets "Connection: close" when the client's forwarder or this server is about
// to stop, and where another server has the connection and the request's body is not fully read.
func (x *exchange) setConnectionClose() {
	select {
	case <-x.info.Draining:
		x.w.Header().Set("Connection", "close")
	case <-x.edge.stopping:
		x.w.Header().Set("Connection", "close")
	default:
		if x.conn == nil && x.r.ProtoMajor == 1 && !x.body.complete() {
			x.w.Header().Set("Connection", "close")
		}
	}
}

// finish completes the request's accounting. An answer that broke off becomes an abort.
func (x *exchange) finish(completed bool) {
	switch {
	case x.r.ProtoMajor != 1:
	case !completed:
		if x.conn != nil {
			x.conn.abortOnClose()
		}
	case x.status != http.StatusSwitchingProtocols:
		x.drainBody()
	}
	if x.status == 0 {
		x.status = cmp.Or(x.record.Status, statusClientGone) // the policy's answer, or none
	}
	x.finishRecord()
	if x.status != http.StatusSwitchingProtocols {
		x.reportToAgent()
		x.reportToForwarder()
	}
}

// reportToForwarder reports a request that did not get through, and the connection's first one
// after it that did.
func (x *exchange) reportToForwarder() {
	forwarder := x.info.Forwarder
	if forwarder == nil || x.conn == nil || x.status == statusClientGone {
		return
	}
	switch x.code {
	// the endpoint can be reached
	case account.CodeBadRequest, account.CodeHeaderTooLarge, account.CodeDenied, account.CodeLoginNeeded,
		account.CodeRateLimited, account.CodeMisdirected:
		return
	}
	if failed := x.conn.lastFailed.Swap(x.code != ""); failed || x.code != "" {
		forwarder.ReportLine(tunnel.RequestLine{Status: x.status, Code: string(x.code), Duration: time.Since(x.start),
			At: x.start})
	}
}

const maxReportedPath = 512

// reportToAgent shows the request on the agent's screen, without the query, which often holds
// secrets.
func (x *exchange) reportToAgent() {
	agent := x.target.agent
	if agent == nil {
		return
	}
	path := x.r.URL.EscapedPath()
	agent.Report(tunnel.RequestLine{
		EndpointID: agent.Endpoint().ID, Method: x.r.Method, Path: path[:min(len(path), maxReportedPath)],
		Status: x.status, Duration: time.Since(x.start), At: x.start,
	})
}
