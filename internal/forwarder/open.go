// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// failure is why a connection did not get through: for the metric, and for the client if it speaks
// HTTP.
type failure struct {
	reason reason
	code   account.Code
	msg    string // a sentence that is safe to show
}

// serve relays one accepted connection. It owns c. Little of it is on the stack while bytes are
// moved: that of an idle connection stays small.
func (f *forwarder) serve(c connection, to *claim, stats *portStats) {
	stack.Grow8KiB()
	stats.begin()
	defer stats.end()
	cl := f.newCaller(c, to, stats)
	defer cl.release()
	for again := cl.failed == nil; again; {
		t := f.open(cl)
		if t == nil {
			break
		}
		moved, err := relay.Join(f.connCtx, t, t.far, relay.Options{})
		again = f.ended(t, moved, err)
	}
	f.answer(cl)
}

func (f *forwarder) newCaller(c connection, to *claim, stats *portStats) *caller {
	cl := &caller{connection: c, to: to, source: relay.NewSource(c), stats: stats, came: time.Now()}
	if to.endpointID == "" { // nobody has to know who calls
		cl.failed = offline(*to)
		return cl
	}
	cl.hold = cl.came.Add(min(f.timing.hold, f.timing.open))
	cl.header = tunnel.OpenHeader{
		EndpointID: to.endpointID, Scheme: to.scheme, Host: to.host, Port: to.port, ClientAddr: c.RemoteAddr().String(),
		Pod: f.identify(c, cl.hold),
	}
	return cl
}

// open opens a stream on the session that there is, or comes within the hold, and on the next one
// should that break just then. Without one it returns nil.
func (f *forwarder) open(c *caller) *trial {
	for {
		st, session := f.openOnce(c)
		switch {
		case st != nil:
			t := newTrial(c, st)
			t.wait.begin(t, f.timing.hold)
			return t
		case session == nil:
			c.failed = f.noEdge(c.to)
			return nil
		}
		f.pause(c, session)
	}
}

func (f *forwarder) noEdge(to *claim) *failure {
	msg := "The forwarder of %s has no connection to the service's edge."
	if f.edge.session() != nil {
		msg = "The service's edge does not respond to the forwarder of %s."
	}
	return &failure{reasonNoEdge, account.CodeNoEdge, fmt.Sprintf(msg, to.url())}
}

func (f *forwarder) openOnce(c *caller) (*tunnel.Stream, *tunnel.Session) {
	ctx, cancel := context.WithDeadline(f.connCtx, c.hold)
	defer cancel()
	session, err := f.edge.Wait(ctx)
	if err != nil || ctx.Err() != nil {
		return nil, nil
	}
	until := c.came.Add(f.timing.open)
	h := c.header
	h.Deadline = time.Until(until) // what the hold has left of it
	h.BytesFollow = len(c.kept.buf) > 0 || hasSent(c.connection)
	st, err := session.Open(ctx, h)
	if err != nil {
		return nil, session
	}
	_ = st.SetReadDeadline(until)
	return st, session
}

// pause waits until the session that took no stream ends, or says that it drains, or may take
// streams again.
func (f *forwarder) pause(c *caller, session *tunnel.Session) {
	select {
	case <-session.Done():
	case <-session.PeerDraining():
	case <-time.After(min(50*time.Millisecond, time.Until(c.hold))):
	case <-f.connCtx.Done():
	}
}

// ended says whether another trial follows: what the edge did not act on, because it is about to
// stop, goes to its successor.
func (f *forwarder) ended(t *trial, moved relay.Result, err error) (again bool) {
	t.wait.end()
	if t.isOpen() {
		t.stats.moved(moved.AToB, moved.BToA)
		if err != nil {
			t.stats.fail(reasonAborted)
		}
		return false
	}
	why := t.end()
	var refused *tunnel.RefusedError
	if !errors.As(why, &refused) || refused.Code != tunnel.RefusedDraining {
		t.failed = failureOf(why, *t.to)
		return false
	}
	f.pause(t.caller, t.far.Session())
	return true
}

// answer tells a client that did not get through.
func (f *forwarder) answer(c *caller) {
	if c.failed != nil {
		c.stats.failed(c.failed.reason, c.failed.msg)
		f.refuse(c.connection, *c.to, &c.kept, c.failed)
	}
}

// identify returns the pod that the connection comes from, or nil.
func (f *forwarder) identify(c connection, until time.Time) *tunnel.PodIdentity {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	if f.options.Identify == nil || !ok {
		return nil
	}
	ctx, cancel := context.WithDeadline(f.connCtx, until)
	defer cancel()
	return f.options.Identify(ctx, from.AddrPort().Addr().Unmap())
}

func offline(to claim) *failure {
	return &failure{reasonOffline, account.CodeEndpointOffline,
		fmt.Sprintf("The endpoint %s is offline: its agent is not connected.", to.url())}
}

// failureOf words the edge's answer.
func failureOf(err error, to claim) *failure {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, errClientGone):
		return &failure{reason: reasonClient}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{reasonSilent, account.CodeNoEdge,
			fmt.Sprintf("The service's edge did not answer for %s in time.", to.url())}
	case !errors.As(err, &refused):
		return &failure{reasonBroken, account.CodeNoEdge,
			fmt.Sprintf("The connection to the service's edge broke while %s was being called.", to.url())}
	}
	switch refused.Code {
	case tunnel.RefusedOffline:
		return offline(to)
	case tunnel.RefusedUpstream:
		return &failure{reasonUpstream, account.CodeUpstreamUnreachable,
			fmt.Sprintf("The agent of %s cannot reach its upstream.", to.url())}
	case tunnel.RefusedUnknownEndpoint, tunnel.RefusedMismatch:
		return &failure{reasonUnknown, account.CodeEndpointUnknown,
			fmt.Sprintf("The service has no endpoint %s with the id that this cluster knows.", to.url())}
	case tunnel.RefusedForbidden:
		return &failure{reasonForbidden, account.CodeScope,
			fmt.Sprintf("The authtoken of this cluster's forwarders may not connect to %s.", to.url())}
	default:
		return &failure{reasonBroken, account.CodeInternal,
			fmt.Sprintf("The service's edge could not serve %s: %s.", to.url(), refused.Code)}
	}
}
