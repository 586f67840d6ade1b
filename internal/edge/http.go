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
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Limits of what is read from clients.
const (
	clientIdle      = 5 * time.Minute
	maxHTTP2Streams = 250
	// What an HTTP/2 stream and its connection take of uploads that nobody reads yet; so one that
	// stalls holds up no other.
	uploadBuffer     = 1 << 20
	connUploadBuffer = 16 << 20
)

// statusClientGone is what is counted and shown for a request whose client left before the answer.
const statusClientGone = 499

type connKey struct{}

func (e *Edge) newHTTPServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:                      http.HandlerFunc(e.handle),
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
				cc.state(st)
			}
		},
	}
}

// clientConnOf returns the client's connection below one that the HTTP server has; nil when there
// is none.
func clientConnOf(c net.Conn) (*clientConn, *framing.Conn) {
	framed, ok := c.(*framing.Conn)
	if !ok {
		return nil, nil
	}
	cc, _ := framed.Conn.(*clientConn)
	return cc, framed
}

// connContext is what the requests of a connection begin with: it is done when the connection's is,
// and knows what the HTTP server's does.
type connContext struct {
	context.Context
	server context.Context
	conn   *clientConn
}

// Value finds the connection, and what the HTTP server has to say of it.
func (c *connContext) Value(key any) any {
	if _, ok := key.(connKey); ok {
		return c.conn
	}
	if v := c.server.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// serveHTTP accepts the client, whose checks are done, and lets the HTTP server have the
// connection.
func (e *Edge) serveHTTP(ctx context.Context, c Client, ep *account.Endpoint, o ClientInfo) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	cc := newClientConn(inner, c, ep, o)
	if err := c.Accept(); err != nil {
		_ = c.Close()
		return
	}
	framed := framing.New(cc, framing.Options{
		Protocol: framing.HTTP1OrHTTP2, StartTimeout: clientIdle, HeadTimeout: framing.HeadTimeout,
	})
	if !e.in.give(framed) {
		_ = c.Reset(tunnel.RefusedDraining)
		return
	}
	select {
	case <-cc.finished:
	case <-ctx.Done():
		cc.abort()
		<-cc.finished
	}
	cc.linger()
}

// exchange is one request and its answer.
type exchange struct {
	edge     *Edge
	conn     *clientConn // nil where somebody else has the connection
	endpoint *account.Endpoint
	origin   *ClientInfo
	w        http.ResponseWriter
	out      http.ResponseWriter // w, or what the policies have put before it
	r        *http.Request
	body     *watchedBody
	host     string // that the client asked for
	route    route
	replay   *replay   // of body, once it is sent
	target   target    // that serves the request, or tries to
	stream   *upstream // that the answer comes over; nil where it is not known, or shared
	start    time.Time
	status   int
	code     account.Code // of a page; empty when the upstream answered
	seen     RequestRecord
}

// handle serves one request of a connection of ours. The URL is the connection's; the agent is
// chosen for every request.
func (e *Edge) handle(w http.ResponseWriter, r *http.Request) {
	cc, ok := r.Context().Value(connKey{}).(*clientConn)
	if !ok {
		panic("edge: a request without its connection")
	}
	x := &exchange{edge: e, conn: cc, endpoint: cc.endpoint, origin: &cc.origin, w: w, r: r}
	x.run()
	if r.Close || w.Header().Get("Connection") == "close" {
		cc.ending.Store(true)
	}
}

// ServeHTTP serves one request to the endpoint, of a connection that somebody else has parsed. An
// answer that breaks off ends in a panic with http.ErrAbortHandler, and r's context cuts what the
// request caused. Drain waits for it.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, o ClientInfo) {
	e.enter()
	defer e.leave()
	x := &exchange{edge: e, endpoint: ep, origin: &o, w: w, r: r}
	x.run()
}

func (x *exchange) run() {
	x.start = time.Now()
	x.see()
	whole := false
	defer func() { x.done(whole) }()
	x.serve()
	whole = true
}

func (x *exchange) serve() {
	if x.r.ContentLength != 0 {
		x.body = &watchedBody{ReadCloser: x.r.Body, seen: &x.seen, trailer: x.r.Trailer}
		x.r = x.r.WithContext(x.r.Context()) // a copy: the server goes by the body that it made
		x.r.Body = x.body
	}
	if x.conn != nil {
		if problem := framing.CheckRequest(x.r); problem != "" {
			x.refuse(problem)
			return
		}
	}
	if x.r.ProtoMajor == 1 {
		_ = http.NewResponseController(x.w).EnableFullDuplex() // HTTP/1 of net/http always can
		dropUpgradeToHTTP2(x.r.Header)
	}
	maps.DeleteFunc(x.r.Header, isReserved)
	dropFromTrailer(x.r.Trailer)
	x.stateClient()
	defer func() { x.target.release() }()
	x.visit(x.w, x.r, x.endpoint, 0)
}

// refuse answers a malformed request. What follows it on an HTTP/1 connection is not taken for
// another request.
func (x *exchange) refuse(problem string) {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
	x.page(account.CodeBadRequest, problem)
}

// proxy lets the request have what answers at the end of its route.
func (x *exchange) proxy(w http.ResponseWriter, r *http.Request) {
	x.out = w
	proxy := httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      x,
		ModifyResponse: x.response,
		ErrorHandler:   x.fail,
		BufferPool:     buffers,
		ErrorLog:       x.edge.http.ErrorLog,
	}
	proxy.ServeHTTP(w, r)
}

// response looks at the upstream's answer before it goes to the client.
func (x *exchange) response(res *http.Response) error {
	x.status = res.StatusCode
	dropLoginCookies(res.Header)
	maps.DeleteFunc(res.Header, isReserved)
	maps.DeleteFunc(res.Trailer, isReserved) // the names; values come with its end
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.report() // its end may be far away
		x.tell()
		return nil
	}
	x.keepOrClose()
	if _, ok := res.Header["Content-Type"]; !ok {
		x.out.Header()["Content-Type"] = nil // net/http would guess one
	}
	x.answer(res)
	return nil
}

// keepOrClose asks the client to come back over another connection when the forwarder that relays
// it, or this server, is about to stop, and where the connection is not ours and the rest of the
// request may not be wanted.
func (x *exchange) keepOrClose() {
	select {
	case <-x.origin.Draining:
		x.w.Header().Set("Connection", "close")
	case <-x.edge.draining:
		x.w.Header().Set("Connection", "close")
	default:
		if x.conn == nil && x.r.ProtoMajor == 1 && !x.body.complete() {
			x.w.Header().Set("Connection", "close")
		}
	}
}

// done closes the books. A response that broke off in the middle becomes an abort.
func (x *exchange) done(whole bool) {
	switch {
	case x.r.ProtoMajor != 1:
	case !whole:
		if x.conn != nil {
			x.conn.willAbort()
		}
	case x.status != http.StatusSwitchingProtocols:
		x.finishBody()
	}
	if x.status == 0 {
		x.status = cmp.Or(x.seen.Status, statusClientGone) // a policy has answered, or nobody
	}
	x.saw()
	if x.status != http.StatusSwitchingProtocols {
		x.report()
		x.tell()
	}
}

// tell tells the forwarder of every request that did not get through, and of the connection's next
// one that did.
func (x *exchange) tell() {
	tell := x.origin.ReportLine
	if tell == nil || x.conn == nil || x.status == statusClientGone {
		return
	}
	switch x.code {
	// nothing is wrong with the way
	case account.CodeBadRequest, account.CodeDenied, account.CodeLoginNeeded, account.CodeRateLimited:
		return
	}
	if failed := x.conn.failing.Swap(x.code != ""); failed || x.code != "" {
		tell(tunnel.RequestLine{Status: x.status, Code: string(x.code), Duration: time.Since(x.start), At: x.start})
	}
}

const maxReportedPath = 512

// report shows the request on the agent's screen. The query stays out: it often holds secrets.
func (x *exchange) report() {
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
