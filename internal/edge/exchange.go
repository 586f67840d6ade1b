// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bufio"
	"cmp"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// exchange is one request and its answer.
type exchange struct {
	edge         *Edge
	conn         *clientConn // client's connection; nil where another HTTP server has it
	endpoint     *account.Endpoint
	info         *ClientInfo
	w            http.ResponseWriter
	policyWriter http.ResponseWriter // w, or the writer that the policies wrap it in
	r            *http.Request
	body         *clientBody
	delivery     delivery
	status       int
	code         account.Code // why an error page answered; empty when the upstream answered
	record       RequestRecord
	hostRefused  bool // hostRefused reports that the upstream's answer says it does not accept the Host.
}

func (e *Edge) newExchange(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, info *ClientInfo) *exchange {
	return &exchange{edge: e, endpoint: ep, info: info, w: w, r: r,
		delivery: delivery{upstreams: e.upstreams, private: info.Upstreams, accountID: ep.AccountID}}
}

func (x *exchange) run() {
	x.record.Endpoint, x.record.Client, x.record.Request, x.record.StartedAt = x.endpoint, x.info, x.r, time.Now()
	x.edge.meter.Start(&x.record)
	x.w = &countingWriter{x.w, x}
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
	x.info.setForwardingHeaders(x.r)
	defer func() { x.delivery.target.release() }()
	x.handleRequest(x.w, x.r, x.endpoint, 0)
}

// handleRequest applies the endpoint's policy to a request and forwards it. hops is the number of
// internal endpoints that the request has passed.
func (x *exchange) handleRequest(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, hops int) {
	ctx := r.Context()
	latest, agent, err := x.edge.router.resolveEndpoint(ctx, ep, x.info)
	if agent != nil {
		x.delivery.setTarget(target{agent: agent})
	}
	if err != nil {
		x.fail(w, r, err)
		return
	}
	if hops == 0 && x.conn != nil {
		if refused := x.info.admitHost(r, latest); refused != nil {
			x.writeError(refused.Code, refused.Msg)
			return
		}
	}
	policy, err := x.edge.router.policies.forEndpoint(latest)
	switch {
	case err != nil:
		x.fail(w, r, err)
		return
	case policy == nil:
		x.forward(w, r, latest, agent, trafficpolicy.Target{}, hops)
		return
	}
	conn := x.info.policyConn(latest)
	verdict := x.info.verdicts.verdict(ctx, policy, conn)
	if verdict.Deny {
		x.writeError(account.CodeDenied, "The traffic policy of this endpoint does not admit the connection.")
		return
	}
	policy.ServeHTTP(w, r, conn, &hop{x, latest, agent, verdict.Target, hops})
}

// hop is the endpoint whose policy runs for a request.
type hop struct {
	x        *exchange
	endpoint *account.Endpoint
	agent    Agent                // agent that was chosen; nil = none was yet
	target   trafficpolicy.Target // target that the policy chose for the connection
	hops     int                  // internal endpoints that the request has passed
}

// Forward sends the request on to the target that the policy chose.
func (h *hop) Forward(w http.ResponseWriter, r *http.Request, t trafficpolicy.Target) {
	if t == (trafficpolicy.Target{}) {
		t = h.target
	}
	h.x.forward(w, r, h.endpoint, h.agent, t, h.hops)
}

// WritePage answers a request that the policy refuses with an error page of the edge.
func (h *hop) WritePage(_ http.ResponseWriter, _ *http.Request, status int, code account.Code, msg string) {
	h.x.writeErrorStatus(status, code, msg)
}

// forward sends a request on to the target that the endpoint's policy chose.
func (x *exchange) forward(
	w http.ResponseWriter, r *http.Request, ep *account.Endpoint, agent Agent, t trafficpolicy.Target, hops int,
) {
	next, route, err := x.edge.router.nextHop(r.Context(), ep, agent, t, x.info)
	switch {
	case err != nil:
		x.fail(w, r, err)
	case next == nil:
		x.delivery.route = route
		x.proxy(w, r)
	case hops == maxHops:
		x.fail(w, r, account.Errorf(account.CodeLoop, "more than %d internal endpoints in a row", maxHops))
	default:
		x.handleRequest(w, r, next, hops+1)
	}
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
		Rewrite:        x.delivery.rewrite,
		Transport:      &x.delivery,
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
	x.watchForHostRefusal(res)
	if _, ok := res.Header["Content-Type"]; !ok {
		x.policyWriter.Header()["Content-Type"] = nil // net/http would guess one
	}
	prepareBody(res, x.policyWriter, x.delivery.flusher)
	return nil
}

// setConnectionClose sets "Connection: close" when the client's forwarder or this server is about
// to stop, and where another server has the connection and the request's body is not fully read.
func (x *exchange) setConnectionClose() {
	select {
	case <-x.info.Draining:
		x.w.Header().Set("Connection", "close")
	case <-x.edge.stopping.Done():
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
		// On a connection of another server setConnectionClose has asked for its end.
		if !x.body.drain(x.w) && x.conn != nil {
			x.conn.stopReading()
		}
	}
	x.status = cmp.Or(x.status, x.record.Status, statusClientGone) // the policy's answer, or none
	x.record.Duration, x.record.Code = time.Since(x.record.StartedAt), x.code
	x.record.BackendID = x.delivery.target.leaf.BackendID
	x.record.Status = cmp.Or(x.record.Status, x.status) // those of upgrades and of clients that left are not written
	x.edge.meter.Finish(&x.record)
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
		forwarder.ReportLine(tunnel.RequestLine{Status: x.status, Code: string(x.code),
			Duration: time.Since(x.record.StartedAt), At: x.record.StartedAt})
	}
}

const maxReportedPath = 512

// reportToAgent shows the request on the agent's screen, without the query, which often holds
// secrets.
func (x *exchange) reportToAgent() {
	agent := x.delivery.target.agent
	if agent == nil {
		return
	}
	path, code := x.r.URL.EscapedPath(), ""
	if x.hostRefused {
		code = tunnel.LineHostRefused
	}
	agent.Report(tunnel.RequestLine{
		EndpointID: agent.Endpoint().ID, Method: x.r.Method, Path: path[:min(len(path), maxReportedPath)], Code: code,
		Status: x.status, Duration: time.Since(x.record.StartedAt), At: x.record.StartedAt,
	})
}

// countingWriter records the status and the size of an answer of the upstream, a policy or the edge.
type countingWriter struct {
	http.ResponseWriter
	x *exchange
}

// WriteHeader records the status that the client gets.
func (w *countingWriter) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		dropLoginCookies(w.Header()) // the upstream may set some in an interim response
		maps.DeleteFunc(w.Header(), isReservedHeader)
	}
	if status >= 200 {
		w.x.setConnectionClose()
	}
	if record := &w.x.record; record.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		record.Status, w.x.status = status, status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes to the client.
func (w *countingWriter) Write(p []byte) (int, error) {
	w.x.record.Status = cmp.Or(w.x.record.Status, http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.x.record.addBytes(0, n)
	return n, err
}

// Unwrap lets http.ResponseController reach the wrapped writer.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack returns the connection of an upgraded request, whose bytes are counted too. The connection
// first returns what the HTTP server has read ahead: the proxy reads the connection, not the
// buffer.
func (w *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if half, ok := c.(relay.HalfCloser); ok && err == nil {
		readAhead := make([]byte, buffered.Reader.Buffered())
		_, _ = io.ReadFull(buffered, readAhead)
		up := &upgradedConn{HalfCloser: half, record: &w.x.record, readAhead: readAhead}
		buffered.Reader.Reset(up)
		return up, buffered, nil
	}
	return c, buffered, err
}

// upgradedConn is the client's connection after an upgrade.
type upgradedConn struct {
	relay.HalfCloser
	record    *RequestRecord
	readAhead []byte // bytes that were read and not returned yet
}

// Read reads from the client.
func (c *upgradedConn) Read(p []byte) (int, error) {
	n, err := copy(p, c.readAhead), error(nil)
	if c.readAhead = c.readAhead[n:]; n == 0 {
		n, err = c.HalfCloser.Read(p)
	}
	c.record.addBytes(n, 0)
	return n, err
}

// Write writes to the client.
func (c *upgradedConn) Write(p []byte) (int, error) {
	n, err := c.HalfCloser.Write(p)
	c.record.addBytes(0, n)
	return n, err
}
