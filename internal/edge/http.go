// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
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
	cc.awaitEnd(framed)
	cc.upstreams.Close()
	cc.linger()
}

// awaitEnd returns when the HTTP server has let go of the connection, which the end of its context aborts.
func (c *clientConn) awaitEnd(framed *framing.Conn) {
	var draining <-chan struct{}
	var idleEnds <-chan time.Time
	if c.info.DrainsIdle {
		draining = c.info.Draining
	}
	for {
		select {
		case <-c.serverDone:
			return
		case <-c.ctx.Done():
			c.abort()
			<-c.serverDone
			return
		case <-draining:
			draining, idleEnds = nil, time.After(idleDrainDelay)
		case <-idleEnds:
			idleEnds = nil
			if framed.GoAway() {
				continue
			}
			c.update(func() {
				c.endsIdle = true
				c.endIdleLocked()
			})
		}
	}
}

// endIdleLocked makes the HTTP server close a connection that serves no request, once it is to end so; mu
// must be held.
func (c *clientConn) endIdleLocked() {
	if c.endsIdle && !c.active {
		c.readStopped = true
		_ = c.setReadDeadlineLocked(time.Unix(1, 0)) // ends a read that is under way
	}
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

const (
	// lingerTime and lingerBytes bound what is read from a client after the last answer, so that
	// the answer is not lost with unread input.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// clientConn is a client's connection as the HTTP server uses it. It adds two things to Client: an
// aborted answer ends in a reset, every other in a clean end; and serverDone tells Serve when the
// HTTP server has let go.
type clientConn struct {
	Client
	ctx      context.Context // context of Serve
	endpoint *account.Endpoint
	info     ClientInfo

	verdicts   connVerdicts
	upstreams  PrivateUpstreams
	serverDone chan struct{}
	doneOnce   sync.Once
	lastFailed atomic.Bool // lastFailed reports that the last request did not reach the upstream.
	// lastWrites is set when the HTTP server has all of the last answer: it writes the rest and
	// closes the connection.
	lastWrites atomic.Bool

	reading sync.Mutex // reading is held by the one who reads from Client.

	mu             sync.Mutex
	readStopped    bool // readStopped ends all reads but linger's.
	active         bool // active is set while a request is being served; with DrainsIdle only.
	endsIdle       bool // endsIdle ends the connection when it is not active.
	hijacked       bool
	aborted        bool
	closed         bool
	deadline       time.Time // deadline of reads
	deadlinePassed bool      // deadlinePassed is set while Client has a deadline in the past.
	// readTimer makes reads fail at the deadline; nil = none was set yet.
	readTimer *time.Timer
	// readTimerAt is when readTimer fires, perhaps before the deadline; zero = it does not.
	readTimerAt time.Time
}

func newClientConn(ctx context.Context, c Client, ep *account.Endpoint, info ClientInfo) *clientConn {
	cc := &clientConn{Client: c, ctx: ctx, endpoint: ep, info: info, serverDone: make(chan struct{})}
	cc.info.verdicts, cc.info.Upstreams = &cc.verdicts, &cc.upstreams
	return cc
}

// update changes the state under the lock.
func (c *clientConn) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Read reads until stopReading.
func (c *clientConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	stopped := c.readStopped
	c.mu.Unlock()
	if stopped {
		return 0, errReadStopped
	}
	return c.Client.Read(p)
}

// errReadStopped is not io.EOF: the HTTP server must not take the client's body for complete.
var errReadStopped = errors.New("the rest of the client's input is not wanted")

// stopReading makes the request that is being answered the connection's last: what the client still
// sends is not read as another request.
func (c *clientConn) stopReading() { c.update(func() { c.readStopped = true }) }

// Write sends p. The end of the last answer is sent together with the end of the connection.
func (c *clientConn) Write(p []byte) (int, error) {
	write := c.Client.Write
	if later, ok := c.Client.(interface{ WriteLater(p []byte) (int, error) }); ok && c.lastWrites.Load() {
		write = later.WriteLater
	}
	return write(p)
}

// SetDeadline sets both deadlines.
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.Client.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads. The HTTP server sets several for each request, hardly
// one of which passes, so Client gets only those that have passed, and one timer serves all. It is
// not rescheduled for a later deadline until it fires.
func (c *clientConn) SetReadDeadline(t time.Time) (err error) {
	c.update(func() { c.deadline, err = t, c.setReadDeadlineLocked(t) })
	return err
}

// setReadDeadlineLocked makes reads fail at t; mu must be held.
func (c *clientConn) setReadDeadlineLocked(t time.Time) error {
	left := time.Until(t)
	switch {
	case t.IsZero() || left > 0:
		if c.deadlinePassed {
			if err := c.Client.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			c.deadlinePassed = false
		}
	default:
		c.deadlinePassed = true
		return c.Client.SetReadDeadline(t)
	}
	switch {
	case t.IsZero() || !c.readTimerAt.IsZero() && !t.Before(c.readTimerAt):
		return nil
	case c.readTimer == nil:
		c.readTimer = time.AfterFunc(left, c.readTimerFired)
	default:
		c.readTimer.Reset(left)
	}
	c.readTimerAt = t
	return nil
}

// readTimerFired applies the deadline when readTimer fires.
func (c *clientConn) readTimerFired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readTimerAt = time.Time{}
	if !c.deadline.IsZero() && !c.deadlinePassed {
		_ = c.setReadDeadlineLocked(c.deadline)
	}
}

// setState follows the HTTP server's view of the connection.
func (c *clientConn) setState(st http.ConnState) {
	if c.info.DrainsIdle || st == http.StateHijacked {
		c.update(func() {
			c.active = st == http.StateActive || st == http.StateHijacked
			c.hijacked = c.hijacked || st == http.StateHijacked
			c.endIdleLocked()
		})
	}
	if st == http.StateClosed {
		c.signalDone()
	}
}

// signalDone closes serverDone.
func (c *clientConn) signalDone() { c.doneOnce.Do(func() { close(c.serverDone) }) }

// abort resets the connection, so that the client does not take what it got for a whole answer.
func (c *clientConn) abort() {
	c.update(func() { c.aborted = true })
	_ = c.Client.Reset(tunnel.Aborted)
}

// abortOnClose makes Close an abort.
func (c *clientConn) abortOnClose() { c.update(func() { c.aborted = true }) }

// Close ends the connection as its state requires. An upgraded connection is closed by Client:
// clean when both directions have ended. Otherwise the answer is complete by HTTP's framing; Serve
// lingers and then closes.
func (c *clientConn) Close() error {
	var already, aborted, hijacked bool
	c.update(func() { already, aborted, hijacked, c.closed = c.closed, c.aborted, c.hijacked, true })
	switch {
	case already:
		return nil
	case aborted:
		_ = c.Client.Reset(tunnel.Aborted)
	case hijacked:
		_ = c.Client.Close()
	default:
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Unix(1, 0)) // ends a read that is under way
	}
	if hijacked {
		c.signalDone()
	}
	return nil
}

// linger closes what Close left half-open, after a bounded read.
func (c *clientConn) linger() {
	c.mu.Lock()
	cut := c.aborted || c.hijacked
	c.mu.Unlock()
	if !cut {
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		c.stopReading()
		c.reading.Lock() // an HTTP/2 server that closes the connection may still read, until the deadline
		_, _ = io.CopyN(io.Discard, c.Client, lingerBytes)
		c.reading.Unlock()
	}
	_ = c.Client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = (time.Time{}); c.readTimer != nil {
		c.readTimer.Stop()
	}
}

// RemoteAddr returns the client's address as stated. The HTTP server calls it first in the
// goroutine of the connection, so the goroutine gets its large stack here.
func (c *clientConn) RemoteAddr() net.Addr {
	stack.Grow16KiB()
	return statedAddr(c.info.ClientAddr)
}

type statedAddr string

func (statedAddr) Network() string  { return "tcp" }
func (a statedAddr) String() string { return string(a) }
