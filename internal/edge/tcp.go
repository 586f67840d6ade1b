// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// targetConn is a connection to a target. On one to an agent the first read waits for the agent's
// answer.
type targetConn interface {
	relay.HalfCloser
	Next() ([]byte, error) // reads; the bytes are valid until the next call
	Abort() error
	waitOpened() error // waits until the target has answered; every call returns the same
}

// pendingConn connects a client to the first target of a route that answers. What the client sends
// is forwarded to the target being tried and kept until one has answered: at most maxReplayBytes,
// then the client's writes block.
type pendingConn struct {
	edge    *Edge
	ctx     context.Context
	cancel  context.CancelFunc
	client  Client
	route   *route
	header  tunnel.OpenHeader             // description of the client
	record  atomic.Pointer[RequestRecord] // counter of the relayed bytes; nil while a spare has no client
	target  target                        // the target that answered
	answers *answerWatch                  // answers is set for sealed http connections.

	once sync.Once
	err  error
	// conn leads to the target being tried, later to the one that answered.
	conn        atomic.Pointer[targetConn]
	established atomic.Bool // established is set once a target has answered.

	// mu guards what follows, and all writes until a target has answered.
	mu           sync.Mutex
	cond         *sync.Cond
	buffered     []byte
	writeClosed  bool // writeClosed is set when the client sends no more.
	bufferClosed bool // bufferClosed is set when nothing is buffered any more.
}

var _ targetConn = (*pendingConn)(nil)

func (e *Edge) newPendingConn(
	ctx context.Context, c Client, r *route, h tunnel.OpenHeader, record *RequestRecord,
) *pendingConn {
	p := &pendingConn{edge: e, client: c, route: r, header: h}
	p.record.Store(record)
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.cond = sync.NewCond(&p.mu)
	return p
}

// waitOpened connects to a target. It accepts the client when one has answered, and refuses it with
// the final error of the route when none has. Every call returns the same.
func (p *pendingConn) waitOpened() error {
	p.once.Do(func() {
		err := p.tryTargets()
		p.mu.Lock()
		p.established.Store(err == nil)
		p.bufferClosed, p.buffered = true, nil
		p.cond.Broadcast()
		p.mu.Unlock()
		if err == nil {
			err = p.accept()
		} else {
			p.edge.refuse(p.client, trafficerror.Of(err).Refusal)
		}
		p.err = err
	})
	return p.err
}

// accept accepts the client. A forwarder that seals is told whose agent answers: agents could claim to
// be others.
func (p *pendingConn) accept() error {
	err := p.client.Accept()
	if st, ok := p.client.(sealed.Below); ok && err == nil && p.header.Sealed {
		_, err = st.WriteLater(sealed.Hint(p.target.agent.Endpoint().ID))
	}
	return err
}

// tryTargets tries one target after the other. A target that has begun to serve is the last.
func (p *pendingConn) tryTargets() error {
	var failed error
	for {
		t, err := p.route.nextTarget(p.ctx)
		if err != nil {
			return p.route.finalError(err, failed)
		}
		conn, err := p.edge.upstreams.connect(p.ctx, &t, p.openHeader())
		if err == nil {
			p.attach(conn)
			err = conn.waitOpened()
		}
		if err == nil {
			p.target = t
			t.reportUp()
			return nil
		}
		if conn := p.conn.Swap(nil); conn != nil {
			_ = (*conn).Close() // a refused stream has to be closed too
		}
		t.release()
		if !p.route.recordFailure(&t, err) || p.ctx.Err() != nil {
			return err
		}
		failed = moreSpecific(failed, err)
	}
}

// openHeader returns the header of the stream to a target.
func (p *pendingConn) openHeader() tunnel.OpenHeader {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.header
	h.BytesFollow = len(p.buffered) > 0
	return h
}

// attach sends what the client has sent so far to conn. Write errors are ignored: the target's
// answer tells whether it arrived.
func (p *pendingConn) attach(conn targetConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.Store(&conn)
	if len(p.buffered) > 0 {
		_, _ = conn.Write(p.buffered)
	}
	if p.writeClosed {
		_ = conn.CloseWrite()
	}
	if p.ctx.Err() != nil { // Abort was called before conn was stored
		_ = conn.Abort()
	}
}

// release ends what waitOpened began.
func (p *pendingConn) release() {
	p.cancel()
	p.target.release()
}

// loadConn returns the current connection, nil while there is none.
func (p *pendingConn) loadConn() targetConn {
	if conn := p.conn.Load(); conn != nil {
		return *conn
	}
	return nil
}

// count counts bytes to and from the target.
func (p *pendingConn) count(to, from int) {
	p.record.Load().addBytes(to, from)
	if p.answers != nil {
		p.answers.count(to, from)
	}
}

// Read waits for a target's answer first.
func (p *pendingConn) Read(b []byte) (int, error) {
	if err := p.waitOpened(); err != nil {
		return 0, err
	}
	n, err := p.loadConn().Read(b)
	p.count(0, n)
	return n, err
}

// Next is Read without a copy.
func (p *pendingConn) Next() ([]byte, error) {
	if err := p.waitOpened(); err != nil {
		return nil, err
	}
	b, err := p.loadConn().Next()
	p.count(0, len(b))
	return b, err
}

// Write does not wait for an answer unless maxReplayBytes are buffered.
func (p *pendingConn) Write(b []byte) (n int, err error) {
	if p.established.Load() {
		n, err = p.loadConn().Write(b)
	} else {
		n, err = p.writeBuffered(b)
	}
	p.count(n, 0)
	return n, err
}

// writeBuffered writes to the target being tried and keeps the bytes for the next one.
func (p *pendingConn) writeBuffered(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.bufferClosed && len(p.buffered) > 0 && len(p.buffered)+len(b) > maxReplayBytes {
		p.cond.Wait()
	}
	switch {
	case p.established.Load():
		return p.loadConn().Write(b)
	case p.bufferClosed:
		return 0, net.ErrClosed
	}
	p.buffered = append(p.buffered, b...)
	if conn := p.loadConn(); conn != nil {
		_, _ = conn.Write(b)
	}
	return len(b), nil
}

// CloseWrite ends the client's sending side.
func (p *pendingConn) CloseWrite() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeClosed = true
	if conn := p.loadConn(); conn != nil {
		if err := conn.CloseWrite(); err != nil && p.established.Load() {
			return err
		}
	}
	return nil
}

// Abort aborts the connection, or the search for a target.
func (p *pendingConn) Abort() error {
	p.cancel()
	var err error
	if conn := p.loadConn(); conn != nil {
		err = conn.Abort()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bufferClosed = true
	p.cond.Broadcast()
	return err
}

// Close closes the connection, without an abort when both directions have ended.
func (p *pendingConn) Close() error {
	if conn := p.loadConn(); conn != nil {
		return conn.Close()
	}
	return nil
}

// LocalAddr returns the address of the edge.
func (p *pendingConn) LocalAddr() net.Addr { return p.edge.conns.Addr() }

// RemoteAddr returns the address of the edge too: the target is not known at first.
func (p *pendingConn) RemoteAddr() net.Addr { return p.edge.conns.Addr() }

// SetDeadline is not supported: the relay ends connections by Abort.
func (p *pendingConn) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetReadDeadline is not supported.
func (p *pendingConn) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// SetWriteDeadline is not supported.
func (p *pendingConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// serveTCP relays between the client and a target of the endpoint. The client's bytes follow the
// header of a stream at once. The client is accepted when a target has answered, and refused with
// the final error of the route when none has.
func (e *Edge) serveTCP(ctx context.Context, c Client, ep *account.Endpoint, info ClientInfo) {
	stack.Grow8KiB()
	record := e.startConnRecord(ep, &info)
	resolve := e.router.resolveTCP
	if info.Sealed {
		resolve = e.router.resolveSealed
	}
	route, err := resolve(ctx, ep, &info)
	switch {
	case account.CodeOf(err) == account.CodeDenied: // not a failure that the forwarder is to report
		e.log.Debug("connection denied", "endpoint", ep.ID, "client", info.ClientAddr, "err", err)
		e.finishConnRecord(record, "", err)
		_ = c.Accept()
		_ = c.Reset(tunnel.Aborted)
		return
	case err != nil:
		e.finishConnRecord(record, "", err)
		e.refuse(c, trafficerror.Of(err).Refusal)
		return
	}
	h := tunnel.OpenHeader{Scheme: ep.Scheme, Sealed: info.Sealed, ClientAddr: info.ClientAddr, TraceID: info.TraceID,
		Pod: withoutAnnotations(info.StatedPod)}
	if h.Sealed { // the agent believes what is inside the seal; the trace id names the stream in a LineDraining
		h.ClientAddr, h.Pod, h.TraceID = "", nil, rand.Text()
	}
	pending := e.newPendingConn(ctx, c, &route, h, record)
	defer pending.release()
	moved, failed, err := pending.join(ctx)
	e.finishConnRecord(record, pending.target.leaf.BackendID, failed)
	if err != nil {
		e.log.Debug("connection broke", "endpoint", ep.ID, "client", info.ClientAddr, "err", err, "to_agent",
			moved.AToB, "from_agent", moved.BToA)
	}
}

// join relays until both directions have ended. It also returns why the target has failed, or nil.
func (p *pendingConn) join(ctx context.Context) (moved relay.Result, failed, err error) {
	if p.header.Sealed && p.header.Scheme == "http" {
		var cut context.CancelCauseFunc
		ctx, cut = context.WithCancelCause(ctx)
		defer cut(nil)
		defer p.watchSealedHTTP(cut)()
	}
	moved, err = relay.Join(ctx, p.client, p, relay.Options{})
	if errors.Is(context.Cause(ctx), tunnel.ErrUnresponsive) {
		return moved, tunnel.ErrUnresponsive, err
	}
	return moved, p.err, err
}

// refuse refuses the client.
func (e *Edge) refuse(c Client, code tunnel.RefuseCode) {
	if err := c.Refuse(code); err != nil {
		e.log.Debug("refusal not sent", "code", code.String(), "err", err)
	}
}

// resolveTCP returns the route of a connection to a tcp endpoint, through the policies of all
// endpoints that it passes.
func (rt *router) resolveTCP(ctx context.Context, ep *account.Endpoint, info *ClientInfo) (route, error) {
	for range maxHops + 1 {
		latest, agent, err := rt.resolveEndpoint(ctx, ep, info)
		var verdict trafficpolicy.Verdict
		if err == nil {
			verdict, err = rt.evaluateConn(ctx, latest, info)
		}
		if agent != nil && (err != nil || verdict.Target != trafficpolicy.Target{}) {
			agent.Release()
		}
		if err != nil {
			return route{}, err
		}
		next, r, err := rt.nextHop(ctx, latest, agent, verdict.Target, info)
		if err != nil || next == nil {
			return r, err
		}
		ep = next
	}
	return route{}, account.Errorf(account.CodeLoop, "%s: more than %d internal endpoints in a row", ep.URL, maxHops)
}

// evaluateConn evaluates the endpoint's policy for a connection; CodeDenied when it denies it.
func (rt *router) evaluateConn(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (trafficpolicy.Verdict, error) {
	policy, err := rt.policies.forEndpoint(ep)
	if policy == nil || err != nil {
		return trafficpolicy.Verdict{}, err
	}
	v := info.verdicts.verdict(ctx, policy, info.policyConn(ep))
	if v.Deny {
		return v, account.Errorf(account.CodeDenied, "the traffic policy of %s denies the connection by %s", ep.URL,
			v.Rule)
	}
	return v, nil
}

// startConnRecord starts the record of a connection to a tcp endpoint.
func (e *Edge) startConnRecord(ep *account.Endpoint, info *ClientInfo) *RequestRecord {
	record := &RequestRecord{Endpoint: ep, Client: info, StartedAt: time.Now()}
	e.meter.Start(record)
	return record
}

// finishConnRecord completes the record of a connection; err is why it did not reach a target.
func (e *Edge) finishConnRecord(record *RequestRecord, backendID string, err error) {
	record.Duration, record.BackendID = time.Since(record.StartedAt), backendID
	if err != nil && !errors.Is(err, context.Canceled) {
		record.Code = trafficerror.Of(err).Code
	}
	e.meter.Finish(record)
}
