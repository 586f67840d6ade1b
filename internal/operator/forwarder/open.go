// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// failure is why a connection failed: for the metric, and for the client if it speaks HTTP.
type failure struct {
	reason reason
	code   account.Code
	msg    string // a sentence that is safe to show
}

// relayConn relays one accepted connection. It closes c. Little is on its stack while bytes are
// copied, so that an idle connection needs little memory.
func (f *forwarder) relayConn(c connection, to *portAssignment, stats *portStats) {
	stack.Grow8KiB()
	stats.begin()
	defer stats.end()
	cl := f.newClientConn(c, to, stats)
	defer f.end(cl)
	for again := cl.failure == nil; again; {
		t := f.openStream(cl)
		if t == nil {
			break
		}
		moved, err := relay.Join(f.connCtx, t, t.stream, relay.Options{})
		again = f.finishAttempt(t, moved, err)
	}
	f.reportFailure(cl)
}

// end frees what a connection uses that is no longer served.
func (f *forwarder) end(c *clientConn) {
	if f.access != nil {
		f.access.live.remove(c)
	}
	c.release()
}

func (f *forwarder) newClientConn(c connection, to *portAssignment, stats *portStats) *clientConn {
	cl := &clientConn{connection: c, target: to, source: relay.NewSource(c), stats: stats, acceptedAt: time.Now()}
	cl.sessionDeadline = cl.acceptedAt.Add(min(f.timing.sessionWait, f.timing.openTimeout))
	if to.endpointID != "" || f.access.restricts(to) { // else no stream names the pod
		cl.pod = f.identifyPod(cl)
	}
	if f.access != nil {
		if cl.failure = f.access.admit(f.connCtx, cl); cl.failure != nil {
			return cl
		}
	}
	if to.endpointID == "" {
		cl.failure = newFailure(trafficerror.OfRefusal(tunnel.RefusedOffline), *to)
		return cl
	}
	cl.header = tunnel.OpenHeader{
		EndpointID: to.endpointID, Scheme: to.Scheme, Host: to.Host, Port: to.Port, ClientAddr: c.RemoteAddr().String(),
	}
	if cl.pod != nil {
		cl.header.Pod = &cl.pod.PodIdentity
	}
	return cl
}

// openStream opens a stream on the current session or one that is established before the session
// deadline; if that session ends meanwhile, on the next one. It returns nil on failure.
func (f *forwarder) openStream(c *clientConn) *attempt {
	for {
		st, session := f.tryOpenStream(c)
		switch {
		case st != nil:
			t := newAttempt(c, st)
			t.watchdog.start(t, f.timing.sessionWait)
			return t
		case session == nil:
			c.failure = f.noEdgeFailure(c.target)
			return nil
		}
		f.awaitRetry(c, session)
	}
}

func (f *forwarder) noEdgeFailure(to *portAssignment) *failure {
	msg := "The forwarder of %s has no connection to the service's edge."
	if f.edge.liveSession() != nil {
		msg = "The service's edge does not respond to the forwarder of %s."
	}
	return &failure{reasonNoEdge, account.CodeNoEdge, fmt.Sprintf(msg, to.String())}
}

func (f *forwarder) tryOpenStream(c *clientConn) (*tunnel.Stream, *tunnel.Session) {
	ctx, cancel := context.WithDeadline(f.connCtx, c.sessionDeadline)
	defer cancel()
	session, err := f.edge.session(ctx)
	if err != nil || ctx.Err() != nil {
		return nil, nil
	}
	until := c.acceptedAt.Add(f.timing.openTimeout)
	h := c.header
	h.Deadline = time.Until(until) // what the wait for a session left
	h.BytesFollow = len(c.buffered.buf) > 0 || hasUnreadInput(c.connection)
	st, err := session.Open(ctx, h)
	if err != nil {
		return nil, session
	}
	_ = st.SetReadDeadline(until)
	return st, session
}

// awaitRetry waits until the session that accepted no stream ends, drains, or may accept streams
// again.
func (f *forwarder) awaitRetry(c *clientConn, session *tunnel.Session) {
	select {
	case <-session.Done():
	case <-session.PeerDraining():
	case <-time.After(min(50*time.Millisecond, time.Until(c.sessionDeadline))):
	case <-f.connCtx.Done():
	}
}

// finishAttempt reports whether another attempt follows: the edge refused the stream because it
// drains, without acting on it; or its replica was lost before it answered, and the attempt can be
// repeated with another one.
func (f *forwarder) finishAttempt(t *attempt, moved relay.Result, err error) (again bool) {
	t.watchdog.stop()
	if t.isOpen() {
		t.stats.addBytes(moved.AToB, moved.BToA)
		if err != nil && !t.revoked.Load() {
			t.stats.countFailure(reasonAborted)
		}
		return false
	}
	cause := t.finish()
	var refused *tunnel.RefusedError
	switch {
	case errors.As(cause, &refused) && refused.Code == tunnel.RefusedDraining:
		replica := t.stream.ReplicaID()
		if replica == t.refusedBy || !t.anotherReplicaServes() {
			f.awaitRetry(t.clientConn, t.stream.Session())
		}
		t.refusedBy = replica
		return true
	case f.connCtx.Err() == nil && t.isReplicaLost(cause) && t.canRepeat():
		return true
	}
	t.failure = classifyOpenError(cause, *t.target)
	return false
}

// reportFailure records the failure and ends the connection.
func (f *forwarder) reportFailure(c *clientConn) {
	if c.failure != nil {
		if c.failure.code != account.CodeAccessDenied { // which is counted, and no failure of the endpoint
			c.stats.recordFailure(c.failure.reason, c.failure.msg)
		}
		f.endFailed(c.connection, *c.target, &c.buffered, c.failure)
	}
}

// identifyPod returns the pod that opened the connection, or nil.
func (f *forwarder) identifyPod(c *clientConn) *caller.Pod {
	ip := c.clientIP()
	if f.options.Pods == nil || !ip.IsValid() {
		return nil
	}
	ctx, cancel := context.WithDeadline(f.connCtx, c.sessionDeadline)
	defer cancel()
	return f.options.Pods.Lookup(ctx, ip)
}

// newFailure returns the failure of a class.
func newFailure(c trafficerror.Class, to portAssignment) *failure {
	return &failure{reason(c.Reason), c.Code, c.Message(to.String())}
}

// classifyOpenError returns the failure for the error that ended an attempt.
func classifyOpenError(err error, to portAssignment) *failure {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, errClientGone):
		return &failure{reason: reasonClient}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{reasonSilent, account.CodeNoEdge,
			fmt.Sprintf("The service's edge did not answer for %s in time.", to.String())}
	case !errors.As(err, &refused):
		return &failure{reasonBroken, account.CodeNoEdge,
			fmt.Sprintf("The connection to the service's edge broke while %s was being called.", to.String())}
	}
	return newFailure(trafficerror.OfRefusal(refused.Code), to)
}
