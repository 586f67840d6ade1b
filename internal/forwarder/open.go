// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	var kept early
	defer kept.forget()
	began := time.Now()
	st, failed := f.open(f.connCtx, c, to, &kept)
	if failed != nil {
		stats.failed(failed.reason, failed.msg)
		f.refuse(c, to, &kept, failed)
		return
	}
	if to.scheme == "http" {
		stats.opened(began) // before whatever the edge tells of its requests
	} else {
		stats.opened(time.Now())
	}
	sent := int64(len(kept.buf))
	kept.forget()
	var far relay.HalfCloser = st
	if to.scheme == "http" {
		far = httpStream{st}
	}
	result, err := relay.Join(f.connCtx, c, far, relay.Options{})
	stats.moved(sent+result.AToB, result.BToA)
	if err != nil {
		stats.fail(reasonAborted)
	}
}

// httpStream leads to the edge's HTTP server, which does not wait for the end of a client that it has finished with.
type httpStream struct{ *tunnel.Stream }

// CloseWrite says that the client sends no more.
func (s httpStream) CloseWrite() error {
	if s.PeerEnded() {
		return s.CloseWriteLater()
	}
	return s.Stream.CloseWrite()
}

// open returns the connection's stream once the edge has opened it. Without a session it waits for one; what the edge did not act on, because it is
// about to stop, it sends again to its successor. All of that together is bounded.
func (f *forwarder) open(ctx context.Context, c connection, to claim, kept *early) (*tunnel.Stream, *failure) {
	if to.endpointID == "" {
		return nil, offline(to)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timing.open)
	defer cancel()
	hold, cancel := context.WithTimeout(ctx, f.timing.hold)
	defer cancel()
	header := tunnel.OpenHeader{
		EndpointID: to.endpointID, Scheme: to.scheme, Host: to.host, Port: to.port, ClientAddr: c.RemoteAddr().String(), Pod: f.identify(hold, c),
	}
	for {
		session, err := f.edge.Wait(hold)
		if err != nil || hold.Err() != nil {
			return nil, &failure{reasonNoEdge, account.CodeNoEdge, fmt.Sprintf("The forwarder of %s has no connection to the service's edge.", to.url())}
		}
		st, err := f.attempt(ctx, session, header, c, kept)
		if err == nil {
			return st, nil
		}
		if !retriable(err) {
			return nil, failureOf(err, to)
		}
		select { // the session ends, or says that it drains, or takes streams again
		case <-session.Done():
		case <-session.PeerDraining():
		case <-time.After(50 * time.Millisecond):
		case <-hold.Done():
		}
	}
}

// identify returns the pod that the connection comes from, or nil.
func (f *forwarder) identify(ctx context.Context, c connection) *tunnel.PodIdentity {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	if f.options.Identify == nil || !ok {
		return nil
	}
	return f.options.Identify(ctx, from.AddrPort().Addr().Unmap())
}

// attempt opens one stream and waits for the edge's answer.
func (f *forwarder) attempt(ctx context.Context, s *tunnel.Session, h tunnel.OpenHeader, c net.Conn, kept *early) (*tunnel.Stream, error) {
	if deadline, ok := ctx.Deadline(); ok {
		h.Deadline = time.Until(deadline)
	}
	h.BytesFollow = len(kept.buf) > 0 || hasSent(c)
	st, err := s.Open(ctx, h)
	if err != nil {
		return nil, &notOpenedError{err}
	}
	if err := kept.await(ctx, c, st); err != nil {
		return nil, err
	}
	return st, nil
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
	case errors.Is(err, context.DeadlineExceeded):
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
