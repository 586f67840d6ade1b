// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
)

// responseWriter runs the rules of on_http_response when the header of a response is written, and
// passes everything else on. Interim responses and the switch to another protocol pass unchanged.
type responseWriter struct {
	http.ResponseWriter
	request         *exchange   // the exchange that has come to its end
	wroteHeader     bool        // or hijacked
	discardedHeader http.Header // not nil when the policy has answered itself: what the upstream says is then dropped
	cancelUpstream  context.CancelFunc
}

// forward forwards the request, and lets it be answered through w. When the policy answers instead, it
// cancels the upstream request, which may panic with http.ErrAbortHandler: the client has a complete
// response.
func (w *responseWriter) forward(r *http.Request, t Target) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w.cancelUpstream = cancel
	defer func() {
		if w.discardedHeader == nil {
			return // whatever happens goes on
		}
		v := recover()
		if err, ok := v.(error); v != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			panic(v)
		}
	}()
	w.request.forwarder.Forward(w, r.WithContext(ctx), t)
}

// errReplaced tells a handler that the rest of its response is not used.
var errReplaced = errors.New("the traffic policy has answered instead")

// Header returns the header of the response, which can be changed until it is written.
func (w *responseWriter) Header() http.Header {
	if w.discardedHeader != nil {
		return w.discardedHeader
	}
	return w.ResponseWriter.Header()
}

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	switch {
	case w.discardedHeader != nil:
		return
	case status == http.StatusSwitchingProtocols:
		w.wroteHeader = true
		w.ResponseWriter.WriteHeader(status)
		return
	case status < 200 || w.wroteHeader:
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.wroteHeader = true
	q := w.request
	x := exchange{
		policy: q.policy, conn: q.conn, w: w.ResponseWriter, r: q.r, startedAt: q.startedAt, results: q.results,
		status: status, budget: q.budget, rules: q.policy.rules[onHTTPResponse], forwarder: q.forwarder, response: w,
	}
	x.next()
}

// replace answers with write, and discards the upstream's response.
func (w *responseWriter) replace(write func()) {
	h := w.ResponseWriter.Header()
	connection := h["Connection"] // the edge's: whether the client may come back over this one
	clear(h)
	if connection != nil {
		h["Connection"] = connection
	}
	write()
	if h.Get("Grpc-Status") == "" { // such a header must end the stream of HTTP/2, as that of an answer without a body
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
	w.discardedHeader = http.Header{}
	w.cancelUpstream()
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(b []byte) (int, error) {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if w.discardedHeader != nil {
		return 0, errReplaced
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls.
func (w *responseWriter) FlushError() error {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if w.discardedHeader != nil {
		return errReplaced
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// Unwrap gives http.ResponseController access to the connection's features: hijack, deadlines, full
// duplex.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack hands the connection over unchanged.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.wroteHeader = w.wroteHeader || err == nil
	return c, rw, err
}

// writeAnswer writes a response of the policy.
func writeAnswer(w http.ResponseWriter, status int, header http.Header, body string) {
	h := w.Header()
	maps.Copy(h, header)
	if bodyAllowed(status) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if bodyAllowed(status) {
		_, _ = w.Write([]byte(body)) // the client may be gone
	}
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
