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
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RequestRecord is one request, or one connection to a tcp endpoint, for metrics, logs and traces.
type RequestRecord struct {
	Endpoint  *account.Endpoint
	Client    *ClientInfo
	Request   *http.Request // the client's request; nil for a connection
	StartedAt time.Time

	// Meter.Start may set these.
	LiveTraffic *Traffic // counter of bytes while they are relayed; nil = none
	State       any      // the Meter's state, for Finish

	// These are set when Meter.Finish is called.
	Duration  time.Duration
	Status    int          // 499 for a client that left before the answer; 0 for a connection
	Code      account.Code // why no upstream answered or no connection was made; "" = success, or the client left
	BackendID string       // backend of the leaf that served; "" = an agent of the endpoint, or none
	Traffic   Traffic      // bytes of bodies; of connections and upgraded connections all bytes
}

// Traffic counts bytes. It is safe for concurrent use.
type Traffic struct{ in, out atomic.Int64 }

// Totals returns the bytes from and to clients.
func (t *Traffic) Totals() (in, out int64) { return t.in.Load(), t.out.Load() }

// Add adds bytes from and to clients. Negative numbers are ignored.
func (t *Traffic) Add(in, out int64) {
	if in > 0 {
		t.in.Add(in)
	}
	if out > 0 {
		t.out.Add(out)
	}
}

// addBytes adds bytes from and to the client; r may be nil.
func (r *RequestRecord) addBytes(in, out int) {
	if r == nil {
		return
	}
	r.Traffic.Add(int64(in), int64(out))
	if r.LiveTraffic != nil {
		r.LiveTraffic.Add(int64(in), int64(out))
	}
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
	if half, ok := c.(halfCloser); ok && err == nil {
		readAhead := make([]byte, buffered.Reader.Buffered())
		_, _ = io.ReadFull(buffered, readAhead)
		up := &upgradedConn{halfCloser: half, record: &w.x.record, readAhead: readAhead}
		buffered.Reader.Reset(up)
		return up, buffered, nil
	}
	return c, buffered, err
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// upgradedConn is the client's connection after an upgrade.
type upgradedConn struct {
	halfCloser
	record    *RequestRecord
	readAhead []byte // bytes that were read and not returned yet
}

// Read reads from the client.
func (c *upgradedConn) Read(p []byte) (int, error) {
	n, err := copy(p, c.readAhead), error(nil)
	if c.readAhead = c.readAhead[n:]; n == 0 {
		n, err = c.halfCloser.Read(p)
	}
	c.record.addBytes(n, 0)
	return n, err
}

// Write writes to the client.
func (c *upgradedConn) Write(p []byte) (int, error) {
	n, err := c.halfCloser.Write(p)
	c.record.addBytes(0, n)
	return n, err
}
