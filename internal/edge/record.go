// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RequestRecord is one request, or one connection to a tcp endpoint, for metrics, logs and traces.
type RequestRecord struct {
	Endpoint  *account.Endpoint
	Client    *ClientInfo
	Request   *http.Request // as the client sent it; nil for a connection
	StartedAt time.Time

	// Meter.Start may set these.
	LiveTraffic *Traffic // counts the bytes as they are moved; nil = nothing does
	State       any      // of the Meter, for Finish

	// These are set when Meter.Finish is called.
	Duration  time.Duration
	Status    int          // 499 for a client that left before the answer; 0 for a connection
	Code      account.Code // why no upstream answered or no connection was made; "" = success, or the client left
	BackendID string       // backend of the leaf that served; "" = an agent of the endpoint, or none
	Traffic   Traffic      // of bodies; of connections and upgraded connections all bytes
}

// Traffic counts bytes. It is safe for concurrent use.
type Traffic struct{ in, out atomic.Int64 }

// Totals returns the bytes from and to clients.
func (t *Traffic) Totals() (in, out int64) { return t.in.Load(), t.out.Load() }

// Add adds bytes from and to clients.
func (t *Traffic) Add(in, out int64) {
	if in > 0 {
		t.in.Add(in)
	}
	if out > 0 {
		t.out.Add(out)
	}
}

func (s *RequestRecord) moved(in, out int) {
	if s == nil {
		return
	}
	s.Traffic.Add(int64(in), int64(out))
	if s.LiveTraffic != nil {
		s.LiveTraffic.Add(int64(in), int64(out))
	}
}

// see tells that the request begins, and counts what its answer has.
func (x *exchange) see() {
	x.seen.Endpoint, x.seen.Client, x.seen.Request, x.seen.StartedAt = x.endpoint, x.origin, x.r, x.start
	x.edge.opt.Meter.Start(&x.seen)
	x.w = &seenWriter{ResponseWriter: x.w, seen: &x.seen}
}

// saw tells how the request went.
func (x *exchange) saw() {
	x.seen.Duration, x.seen.Code, x.seen.BackendID = time.Since(x.start), x.code, x.target.leaf.BackendID
	x.seen.Status = cmp.Or(x.seen.Status, x.status) // an upgrade's, and that of a client who left, are not written
	x.edge.opt.Meter.Finish(&x.seen)
}

// seenConn tells that a connection to a tcp endpoint begins.
func (e *Edge) seenConn(ep *account.Endpoint, o *ClientInfo) *RequestRecord {
	s := &RequestRecord{Endpoint: ep, Client: o, StartedAt: time.Now()}
	e.opt.Meter.Start(s)
	return s
}

// saw tells how the connection went: err is why it did not reach a target.
func (e *Edge) saw(s *RequestRecord, backendID string, err error) {
	s.Duration, s.BackendID = time.Since(s.StartedAt), backendID
	if err != nil && !errors.Is(err, context.Canceled) {
		s.Code = errorCode(err)
	}
	e.opt.Meter.Finish(s)
}

// seenOpening counts what is relayed.
type seenOpening struct {
	*opening
	seen *RequestRecord
}

// Read reads from the target.
func (o *seenOpening) Read(p []byte) (int, error) {
	n, err := o.opening.Read(p)
	o.seen.moved(0, n)
	return n, err
}

// Next is Read without a copy.
func (o *seenOpening) Next() ([]byte, error) {
	p, err := o.opening.Next()
	o.seen.moved(0, len(p))
	return p, err
}

// Write writes to the target.
func (o *seenOpening) Write(p []byte) (int, error) {
	n, err := o.opening.Write(p)
	o.seen.moved(n, 0)
	return n, err
}

// seenWriter counts what an answer has.
type seenWriter struct {
	http.ResponseWriter
	seen *RequestRecord
}

// WriteHeader notes the status that the client gets.
func (w *seenWriter) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		dropLoginCookies(w.Header()) // of an interim response of the upstream
		maps.DeleteFunc(w.Header(), isReserved)
	}
	if w.seen.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.seen.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes to the client.
func (w *seenWriter) Write(p []byte) (int, error) {
	w.seen.Status = cmp.Or(w.seen.Status, http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.seen.moved(0, n)
	return n, err
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (w *seenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack hands over the connection of an upgraded request; its bytes go on being counted. Those
// that the HTTP server has read ahead come first: the proxy reads the connection, not the buffer.
func (w *seenWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if half, ok := c.(halfCloser); ok && err == nil {
		early := make([]byte, buffered.Reader.Buffered())
		_, _ = io.ReadFull(buffered, early)
		up := &seenUpgrade{halfCloser: half, seen: w.seen, early: early}
		buffered.Reader.Reset(up)
		return up, buffered, nil
	}
	return c, buffered, err
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// seenUpgrade is the client's connection after an upgrade.
type seenUpgrade struct {
	halfCloser
	seen  *RequestRecord
	early []byte // read already, not handed out yet
}

// Read reads from the client.
func (c *seenUpgrade) Read(p []byte) (int, error) {
	n, err := copy(p, c.early), error(nil)
	if c.early = c.early[n:]; n == 0 {
		n, err = c.halfCloser.Read(p)
	}
	c.seen.moved(n, 0)
	return n, err
}

// Write writes to the client.
func (c *seenUpgrade) Write(p []byte) (int, error) {
	n, err := c.halfCloser.Write(p)
	c.seen.moved(0, n)
	return n, err
}
