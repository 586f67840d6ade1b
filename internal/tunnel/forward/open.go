// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// Reason is a class of failures: the label of the forwarder's metric. Those that the edge reports
// are the Reasons of package trafficerror.
type Reason string

// The reasons that the edge does not report.
const (
	ReasonNoEdge Reason = "no_edge"        // no session with the edge came up in time
	ReasonSilent Reason = "edge_silent"    // the edge did not answer the stream in time
	ReasonBroken Reason = "edge_broken"    // the session broke before the stream was open, or the edge failed
	ReasonClient Reason = "client_aborted" // the client aborted before the stream was open
)

// Failure is why a connection failed: for the metric, and for the client if it speaks HTTP.
type Failure struct {
	Reason Reason
	Code   account.Code
	Msg    string // a sentence that is safe to show
	Detail string // what follows Msg for those who may read the cluster's objects; may be ""

	Untrusted sealed.Reason // Untrusted is why an agent's seal was refused; "" = it was not.
}

// Serve relays the connection over a stream until it has ended. It returns why no stream opened, or
// nil; then the caller ends the connection, by Fail. Little is on its stack while bytes are copied, so
// that an idle connection needs little memory.
func (r *Relay) Serve(c *Conn) *Failure {
	c.Header.Sealed, c.Header.Tried = false, "" // OpenSealed may have failed
	for {
		st, failure := r.openStream(c)
		if failure != nil {
			return failure
		}
		t := newAttempt(c, st)
		t.watchdog.start(t, r.Timing.SessionWait)
		moved, err := relay.Join(r.Context, t, t.stream, relay.Options{})
		if again, failure := r.finishAttempt(t, moved, err); !again {
			return failure
		}
	}
}

// openStream opens a stream on the current session or one that is established before the session
// deadline; if that session ends meanwhile, on the next one.
func (r *Relay) openStream(c *Conn) (*tunnel.Stream, *Failure) {
	for {
		st, session := r.tryOpenStream(c)
		switch {
		case st != nil:
			return st, nil
		case session == nil:
			return nil, r.noEdgeFailure(c.URL)
		}
		r.awaitRetry(c, session)
	}
}

func (r *Relay) noEdgeFailure(url account.EndpointURL) *Failure {
	msg := "The forwarder of %s has no connection to the service's edge."
	if r.Sessions.Live() != nil {
		msg = "The service's edge does not respond to the forwarder of %s."
	}
	return &Failure{Reason: ReasonNoEdge, Code: account.CodeNoEdge, Msg: fmt.Sprintf(msg, url.String())}
}

func (r *Relay) tryOpenStream(c *Conn) (*tunnel.Stream, *tunnel.Session) {
	ctx, cancel := context.WithDeadline(r.Context, c.SessionDeadline)
	defer cancel()
	session, err := r.Sessions.Session(ctx)
	if err != nil || ctx.Err() != nil {
		return nil, nil
	}
	until := c.acceptedAt.Add(r.Timing.OpenTimeout)
	h := c.Header
	h.Deadline = time.Until(until) // what the wait for a session left
	h.BytesFollow = h.Sealed || len(c.buffered.buf) > 0 || hasUnreadInput(c.Connection)
	st, err := session.Open(ctx, h)
	if err != nil {
		return nil, session
	}
	_ = st.SetReadDeadline(until)
	return st, session
}

// awaitRetry waits until the session that accepted no stream ends, drains, or may accept streams
// again.
func (r *Relay) awaitRetry(c *Conn, session *tunnel.Session) {
	select {
	case <-session.Done():
	case <-session.PeerDraining():
	case <-time.After(min(50*time.Millisecond, time.Until(c.SessionDeadline))):
	case <-r.Context.Done():
	}
}

// finishAttempt reports whether another attempt follows: the edge refused the stream because it
// drains, without acting on it; or its replica was lost before it answered, and the attempt can be
// repeated with another one. Otherwise it returns why the stream never opened, or nil.
func (r *Relay) finishAttempt(t *attempt, moved relay.Result, err error) (again bool, failure *Failure) {
	t.watchdog.stop()
	if t.isOpen() {
		t.Stats.Moved(moved.AToB, moved.BToA, err != nil)
		return false, nil
	}
	cause := t.finish()
	var refused *tunnel.RefusedError
	switch {
	case errors.As(cause, &refused) && refused.Code == tunnel.RefusedDraining:
		replica := t.stream.ReplicaID()
		if replica == t.refusedBy || !anotherReplicaServes(t.stream.Stream) {
			r.awaitRetry(t.Conn, t.stream.Session())
		}
		t.refusedBy = replica
		return true, nil
	case r.Context.Err() == nil && t.isReplicaLost(cause) && t.canRepeat():
		return true, nil
	}
	return false, t.classify(cause)
}

// NewFailure returns the failure of a class at the URL.
func NewFailure(c trafficerror.Class, url account.EndpointURL) *Failure {
	return &Failure{Reason: Reason(c.Reason), Code: c.Code, Msg: c.Message(url.String())}
}

// classify returns the failure for the error that ended an attempt.
func (c *Conn) classify(err error) *Failure {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, errClientGone):
		return &Failure{Reason: ReasonClient}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Failure{Reason: ReasonSilent, Code: account.CodeNoEdge,
			Msg: fmt.Sprintf("The service's edge did not answer for %s in time.", c.URL.String())}
	case !errors.As(err, &refused):
		return &Failure{Reason: ReasonBroken, Code: account.CodeNoEdge,
			Msg: fmt.Sprintf("The connection to the service's edge broke while %s was being called.", c.URL.String())}
	}
	class := trafficerror.OfRefusal(refused.Code)
	if c.Header.EndpointID == "" {
		class = class.ByURL()
	}
	return NewFailure(class, c.URL)
}
