// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
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

// failure is why a connection did not get through: for the metric, and for the client if it speaks HTTP.
type failure struct {
	reason reason
	code   account.Code
	msg    string // a sentence that is safe to show
}

// serve relays one accepted connection. It owns c.
func (f *forwarder) serve(c connection, to claim, stats *portStats) {
	stack.Small()
	stats.begin()
	defer stats.end()
	cl := &caller{connection: c, source: relay.NewSource(c), stats: stats, http: to.scheme == "http", came: time.Now()}
	defer cl.release()
	failed := f.carry(cl, to)
	if failed == nil {
		return
	}
	stats.failed(failed.reason, failed.msg)
	f.refuse(c, to, &cl.kept, failed)
}

// carry relays a client's connection over a stream, and returns nil once it has ended, or why the edge has opened none. Without a session it waits for one;
// what the edge did not act on, because it is about to stop, it sends again to its successor. All of that together is bounded.
func (f *forwarder) carry(c *caller, to claim) *failure {
	if to.endpointID == "" {
		return offline(to)
	}
	hold := c.came.Add(min(f.timing.hold, f.timing.open))
	header := tunnel.OpenHeader{
		EndpointID: to.endpointID, Scheme: to.scheme, Host: to.host, Port: to.port, ClientAddr: c.RemoteAddr().String(), Pod: f.identify(c, hold),
	}
	for {
		st, session, err := f.open(c, header, hold)
		switch {
		case err == nil:
			err = c.relay(f.connCtx, st)
		case session == nil:
			return &failure{reasonNoEdge, account.CodeNoEdge, fmt.Sprintf("The forwarder of %s has no connection to the service's edge.", to.url())}
		}
		if err == nil {
			return nil
		}
		if !retriable(err) {
			return failureOf(err, to)
		}
		select { // the session ends, or says that it drains, or takes streams again
		case <-session.Done():
		case <-session.PeerDraining():
		case <-time.After(min(50*time.Millisecond, time.Until(hold))):
		case <-f.connCtx.Done():
		}
	}
}

// open opens a stream on the session that there is, or comes within the hold. Without one it returns none.
func (f *forwarder) open(c *caller, h tunnel.OpenHeader, hold time.Time) (*tunnel.Stream, *tunnel.Session, error) {
	ctx, cancel := context.WithDeadline(f.connCtx, hold)
	defer cancel()
	session, err := f.edge.Wait(ctx)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, nil, err
	}
	until := c.came.Add(f.timing.open)
	h.Deadline = time.Until(until) // what the hold has left of it
	h.BytesFollow = len(c.kept.buf) > 0 || hasSent(c.connection)
	st, err := session.Open(ctx, h)
	if err != nil {
		return nil, session, &notOpenedError{err}
	}
	_ = st.SetReadDeadline(until)
	return st, session, nil
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

// notOpenedError: the session took no stream, so nothing was sent.
type notOpenedError struct{ cause error }

func (e *notOpenedError) Error() string { return "opening stream: " + e.cause.Error() }
func (e *notOpenedError) Unwrap() error { return e.cause }

// retriable says whether nobody acted on the stream and another session may take it.
func retriable(err error) bool {
	var notOpened *notOpenedError
	var refused *tunnel.RefusedError
	return errors.As(err, &notOpened) || errors.As(err, &refused) && refused.Code == tunnel.RefusedDraining
}

func offline(to claim) *failure {
	return &failure{reasonOffline, account.CodeEndpointOffline, fmt.Sprintf("The endpoint %s is offline: its agent is not connected.", to.url())}
}

// failureOf words the edge's answer.
func failureOf(err error, to claim) *failure {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, errClientGone):
		return &failure{reason: reasonClient}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{reasonSilent, account.CodeNoEdge, fmt.Sprintf("The service's edge did not answer for %s in time.", to.url())}
	case !errors.As(err, &refused):
		return &failure{reasonBroken, account.CodeNoEdge, fmt.Sprintf("The connection to the service's edge broke while %s was being called.", to.url())}
	}
	switch refused.Code {
	case tunnel.RefusedOffline:
		return offline(to)
	case tunnel.RefusedUpstream:
		return &failure{reasonUpstream, account.CodeUpstreamUnreachable, fmt.Sprintf("The agent of %s cannot reach its upstream.", to.url())}
	case tunnel.RefusedUnknownEndpoint, tunnel.RefusedMismatch:
		return &failure{reasonUnknown, account.CodeEndpointUnknown, fmt.Sprintf("The service has no endpoint %s with the id that this cluster knows.", to.url())}
	case tunnel.RefusedForbidden:
		return &failure{reasonForbidden, account.CodeScope, fmt.Sprintf("The authtoken of this cluster's forwarders may not connect to %s.", to.url())}
	default:
		return &failure{reasonBroken, account.CodeInternal, fmt.Sprintf("The service's edge could not serve %s: %s.", to.url(), refused.Code)}
	}
}
