// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// sealTimeout bounds the handshake and the header of a sealed connection.
const sealTimeout = 5 * time.Second

// codeUpstream refuses a sealed connection whose upstream cannot be reached.
const codeUpstream = "UPSTREAM"

// serveSealed accepts the stream, so that the other end can begin the seal, and then decides by what
// is inside.
func (v *streamServer) serveSealed(ctx context.Context, e *endpoint, s *spec, st *tunnel.Stream, start time.Time) {
	if err := st.Accept(); err != nil {
		return
	}
	h := st.Header()
	limit, cancel := context.WithTimeout(ctx, min(sealTimeout, cmp.Or(h.Deadline, sealTimeout)))
	seal := s.Seal.Accept
	if h.IsSpare() {
		seal = s.Seal.Handshake
	}
	in, err := v.unsealed.accept(limit, seal, st)
	cancel()
	if err == nil && h.IsSpare() {
		err = v.awaitClient(ctx, e, st, in)
		if start = time.Now(); err != nil && in.Header.URL.Host == "" || v.endpoints.served(e) != s {
			_ = st.Abort()
			return
		}
	}
	if err != nil {
		v.unsealed.warn(v.opt.Logger, s.info.DisplayName(), err)
		v.opt.Observer.Observe(Connection{EndpointInfo: s.info, Ended: true, Refused: true, Duration: time.Since(start),
			Cause: err.Error()})
		return
	}
	if sealed.FormatKey(s.Seal.Key()) != s.info.SealKey {
		v.endpoints.checkSeal(e) // the key has changed since the last look
	}
	if in.Header.URL != s.URL {
		_ = in.Refuse(sealed.CodeWrongURL, "this stream leads to "+s.URL.String()+", not to "+in.Header.URL.String())
		return
	}
	switch server := s.SealedServer; {
	case s.Serve != nil:
		s.Serve(ctx, &sealedStream{unopened{st}, sealedCaller{in}})
		return
	case server == nil:
	case s.URL.Scheme == "http":
		v.serveSealedHTTP(ctx, e, s, st, in)
		return
	case !server.Admits(ctx, in):
		if conn, err := in.Open(); err == nil {
			_ = conn.Abort()
		}
		return
	}
	v.relayToUpstream(ctx, e, s, sealedCaller{in}, start)
}

// SealedServer applies the owner's traffic policy to sealed connections of one version of an endpoint,
// and is the HTTP server of those to http endpoints: what the service does for plain ones. It is safe for
// concurrent use.
type SealedServer interface {
	// Admits reports whether the policy admits a connection to a tcp endpoint.
	Admits(ctx context.Context, in *sealed.Incoming) bool
	// ServeHTTP opens the connection and serves it until it has ended. When draining is closed, it ends
	// the connection with the next answer.
	ServeHTTP(ctx context.Context, in *sealed.Incoming, to SealedUpstream, draining <-chan struct{})
	// Draining returns a context that ends with Drain.
	Draining() context.Context
	// Drain is called when the version serves no new connections any more, or is about to stop.
	Drain()
}

// SealedUpstream is the upstream of a sealed http endpoint. Equal values are the same upstream.
type SealedUpstream struct {
	server   *streamServer
	endpoint *endpoint
	spec     *spec
}

// Dial connects to the upstream, and reports whether it can be reached. Its error is a
// *tunnel.RefusedError.
func (u SealedUpstream) Dial(ctx context.Context) (relay.HalfCloser, error) {
	conn, err := u.dial(ctx)
	if err != nil {
		return nil, &tunnel.RefusedError{Code: tunnel.RefusedUpstream}
	}
	return u.server.inspection.tapUpstream(u.spec, u.server.endpoints.idOf(u.endpoint), conn), nil
}

func (u SealedUpstream) dial(ctx context.Context) (relay.HalfCloser, error) {
	timeout := upstreamTimeout
	if until, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(until)*9/10) // later the caller has given up
	}
	conn, err := u.server.opt.dialUpstream(ctx, u.spec, timeout)
	u.server.upstreams.report(ctx, u.endpoint, u.spec, true, err)
	return conn, err
}

// Report reports a request to the agent's user.
func (u SealedUpstream) Report(l tunnel.RequestLine) {
	u.server.reportRequest(u.endpoint, u.spec.info, l)
}

// serveSealedHTTP serves a connection to an http endpoint.
func (v *streamServer) serveSealedHTTP(
	ctx context.Context, e *endpoint, s *spec, st *tunnel.Stream, in *sealed.Incoming,
) {
	to := SealedUpstream{v, e, s}
	c, start := newConnection(s, sealedCaller{in}.header()), time.Now()
	c.Caller = in.Caller
	if v.upstreams.isDown(e) { // another member of the pool may serve the caller, which has not sent anything
		limit, cancel := context.WithTimeout(ctx, time.Second) // which leaves the forwarder time for that one
		conn, err := to.dial(limit)
		cancel()
		if err != nil {
			c.Ended, c.Refused, c.Duration, c.Cause = true, true, time.Since(start), s.upstreamCause(err)
			_ = in.Refuse(codeUpstream, c.Cause)
			v.opt.Observer.Observe(c)
			return
		}
		_ = conn.Close()
	}
	v.opt.Observer.Observe(c)
	draining, drain := context.WithCancel(s.SealedServer.Draining())
	defer drain()
	defer context.AfterFunc(st.PeerDraining(), drain)()
	stream := st.Header().TraceID
	v.drains.Store(stream, drain)
	defer v.drains.Delete(stream)
	s.SealedServer.ServeHTTP(ctx, in, to, draining.Done())
	c.Ended, c.Duration = true, time.Since(start)
	v.opt.Observer.Observe(c)
}

// maxUnsealed bounds the connections that are being sealed at a time: a hostile service can open many.
const maxUnsealed = 512

// unsealed are connections that are not sealed yet, and warnings about those that never were. It is
// safe for concurrent use.
type unsealed struct {
	accepting, spares, failures atomic.Int64
	warnings                    rate.Sometimes
}

func newUnsealed() *unsealed { return &unsealed{warnings: rate.Sometimes{Interval: time.Second}} }

// accept calls seal for at most maxUnsealed callers at a time.
func (u *unsealed) accept(
	ctx context.Context, seal func(context.Context, sealed.Below) (*sealed.Incoming, error), st sealed.Below,
) (*sealed.Incoming, error) {
	defer u.accepting.Add(-1)
	if u.accepting.Add(1) > maxUnsealed {
		_ = st.Abort()
		return nil, errors.New("too many callers seal their connections at the same time")
	}
	return seal(ctx, st)
}

// maxSpareAge is how long a sealed connection may have no client; those before end it earlier.
const maxSpareAge = 90 * time.Second

// awaitClient waits for the header of a spare. Meanwhile the stream is none of those for which a drain
// waits.
func (v *streamServer) awaitClient(ctx context.Context, e *endpoint, st *tunnel.Stream, in *sealed.Incoming) error {
	defer v.unsealed.spares.Add(-1)
	if v.unsealed.spares.Add(1) > maxUnsealed {
		return errors.New("too many sealed connections wait for a client")
	}
	v.open.end(st)
	e.streams.end(st)
	ctx, cancel := context.WithTimeout(ctx, maxSpareAge)
	defer cancel()
	err := in.Receive(ctx)
	v.open.begin(st)
	e.streams.begin(st)
	return err
}

// warn logs a failure, at most once a second.
func (u *unsealed) warn(log *slog.Logger, endpoint string, err error) {
	u.failures.Add(1)
	u.warnings.Do(func() {
		log.Warn("A caller could not seal its connection", "endpoint", endpoint, "error", err, "failures",
			u.failures.Swap(0))
	})
}

// sealedCaller is a caller behind a seal.
type sealedCaller struct{ in *sealed.Incoming }

func (c sealedCaller) header() tunnel.OpenHeader {
	h := c.in.Header
	return tunnel.OpenHeader{Scheme: h.URL.Scheme, Host: h.URL.Host, Port: h.URL.Port, ClientAddr: h.ClientAddr,
		TraceID: h.TraceID, Deadline: h.Deadline, Pod: h.Pod}
}

func (c sealedCaller) name() string { return c.in.Caller }

func (c sealedCaller) accept(Connection) (relay.HalfCloser, func(error), error) {
	conn, err := c.in.Open()
	return conn, func(error) {}, err
}

func (c sealedCaller) refuse(to Connection, _ time.Time) { _ = c.in.Refuse(codeUpstream, to.Cause) }

// sealedStream is what is inside a seal, as an Incoming.
type sealedStream struct {
	conn // conn has the bytes inside the seal, or is unopened.
	sealedCaller
}

// unopened is a stream whose seal is not open yet: nothing passes.
type unopened struct{ *tunnel.Stream }

var errUnopened = errors.New("the sealed connection is not accepted yet")

func (unopened) Read([]byte) (int, error)  { return 0, errUnopened }
func (unopened) Write([]byte) (int, error) { return 0, errUnopened }
func (unopened) CloseWrite() error         { return errUnopened }

// Header describes the connection.
func (s *sealedStream) Header() tunnel.OpenHeader { return s.header() }

// Accept opens the connection.
func (s *sealedStream) Accept() error {
	opened, err := s.in.Open()
	if err == nil {
		s.conn = opened
	}
	return err
}

// Refuse refuses the connection, so that the forwarder may try another agent.
func (s *sealedStream) Refuse(code tunnel.RefuseCode) error {
	return s.in.Refuse(codeUpstream, "the program that serves it takes no connection: "+code.String())
}

// sealInterval is how often the certificates of sealed endpoints are looked at.
const sealInterval = 10 * time.Second

// watchSeals checks the certificates of sealed endpoints until ctx is done.
func (t *endpointSet) watchSeals(ctx context.Context) {
	defer t.opt.reportPanic()
	for next := true; next; next = timer.Sleep(ctx, sealInterval) {
		t.mu.Lock()
		endpoints := slices.Clone(t.order)
		t.mu.Unlock()
		for _, e := range endpoints {
			t.checkSeal(e)
		}
	}
}

// checkSeal reports a change of the problem of a sealed endpoint's certificate, and binds the endpoint
// again if the certificate has another key.
func (t *endpointSet) checkSeal(e *endpoint) {
	t.checkingSeal.Lock() // so that what was read last is reported last
	defer t.checkingSeal.Unlock()
	t.mu.Lock()
	s := e.spec
	t.mu.Unlock()
	if s.Seal == nil {
		return
	}
	var cause string
	if err := s.Seal.Problem(s.URL); err != nil { // reads files
		cause = err.Error()
	}
	read := newSpec(s.Endpoint)
	t.mu.Lock()
	current := e.spec == s && !e.removed // else Set was called meanwhile, and the next look is better
	news := current && e.sealProblem != cause
	if news {
		e.sealProblem = cause
	}
	if current && read.info.SealKey != s.info.SealKey && e.update(read) {
		t.enqueue(e)
	}
	t.mu.Unlock()
	if news {
		t.opt.Observer.Observe(SealProblem{EndpointInfo: read.info, Cause: cause})
	}
}
