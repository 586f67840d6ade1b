// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// maxSealedAttempts bounds the agents that are tried for one sealed connection.
const maxSealedAttempts = 8

// ServeSealed is Serve for an endpoint whose agents seal connections; by decides which of them may
// answer. Nothing of the client's is read before one has opened the connection, so that another one
// can be tried.
func (r *Relay) ServeSealed(c *Conn, by *sealed.Trust) *Failure {
	conn, failure := r.openSealed(c, by)
	if failure != nil {
		return failure
	}
	c.Stats.Opened(time.Now())
	moved, err := relay.Join(r.Context, c.Connection, conn, relay.Options{})
	c.Stats.Moved(moved.AToB, moved.BToA, err != nil)
	return nil
}

// openSealed tries one agent after the other. What the first one that was reached answered says more
// than that there is no other.
func (r *Relay) openSealed(c *Conn, by *sealed.Trust) (*sealed.Conn, *Failure) {
	until := c.acceptedAt.Add(r.Timing.OpenTimeout)
	ctx, cancel := context.WithDeadline(r.Context, until)
	defer cancel()
	h := sealed.Header{URL: c.URL, ClientAddr: c.Header.ClientAddr, TraceID: c.Header.TraceID}
	if c.Header.Pod != nil {
		pod := *c.Header.Pod
		pod.Annotations, pod.AnnotationsCut = nil, false // for policies of the edge; they could exceed a frame
		h.Pod = &pod
	}
	c.Header.Sealed = true
	var failed *Failure
	var tried []string
	for attempts := 0; attempts < maxSealedAttempts; {
		c.Header.Tried = strings.Join(tried, ",")
		st, failure := r.openSealedStream(c)
		if failure != nil {
			return nil, cmp.Or(failed, failure)
		}
		h.Deadline = time.Until(until)
		conn, err := by.Connect(ctx, st, h)
		if err == nil {
			_ = st.SetReadDeadline(time.Time{})
			return conn, nil
		}
		var refused *tunnel.RefusedError
		switch isRefused := errors.As(err, &refused); {
		case isRefused && refused.Code == tunnel.RefusedDraining:
			r.awaitRetry(c, st.Session())
			continue
		case isRefused: // by the edge: there is no other agent
			return nil, cmp.Or(failed, c.classify(err))
		}
		attempts++ // a refusal of an edge that drains is none: SessionDeadline bounds those
		failed = classifySealed(c, err)
		var reset *tunnel.ResetError
		switch isLost := failed.Reason == ReasonBroken && !errors.As(err, &reset); {
		case ctx.Err() != nil:
			return nil, failed
		case isLost: // the replica, on the way to an agent that may be good
			r.awaitRetry(c, st.Session())
			continue
		case st.hint == "" || slices.Contains(tried, st.hint):
			return nil, failed
		}
		tried = append(tried, st.hint)
	}
	return nil, failed
}

// openSealedStream opens a stream, on which the seal may begin at once.
func (r *Relay) openSealedStream(c *Conn) (*hintedStream, *Failure) {
	for {
		st, session := r.tryOpenStream(c)
		switch {
		case session == nil:
			return nil, r.noEdgeFailure(c.URL)
		case !slices.Contains(session.Welcome().Features, tunnel.FeatureSealed):
			if st != nil {
				_ = st.Abort()
			}
			f := NewFailure(trafficerror.OfRefusal(tunnel.RefusedNotSealed), c.URL)
			f.Msg = fmt.Sprintf("The service cannot carry sealed connections to %s: update fairlead-server.", c.URL)
			return nil, f
		case st != nil:
			return &hintedStream{Stream: st}, nil
		}
		r.awaitRetry(c, session)
	}
}

// hintedStream is a stream whose first bytes are the agent's hint: the id of its endpoint.
type hintedStream struct {
	*tunnel.Stream

	hint string // "" before the first read
}

// Read reads what follows the hint.
func (s *hintedStream) Read(p []byte) (int, error) {
	if s.hint == "" {
		var err error
		if s.hint, err = sealed.ReadHint(context.Background(), s.Stream); err != nil {
			return 0, err
		}
	}
	return s.Stream.Read(p)
}

var untrustedTexts = map[sealed.Reason]string{
	sealed.KeyUnknown:   "no authority that is trusted for it has signed its certificate.",
	sealed.KeyChanged:   "its key is none of those that are pinned.",
	sealed.NameMismatch: "its certificate is for another account or other endpoints.",
	sealed.Expired:      "its certificate has expired, or is not valid yet.",
	sealed.NotSealed:    "it does not speak the protocol of sealed endpoints.",
}

// classifySealed returns the failure for the error of an agent's, or of what pretended to be one.
func classifySealed(c *Conn, err error) *Failure {
	var untrusted *sealed.UntrustedError
	var refused *sealed.RefusedError
	switch {
	case errors.As(err, &untrusted):
		f := NewFailure(trafficerror.Untrusted(), c.URL)
		f.Untrusted = untrusted.Reason
		f.Msg += ": " + untrustedTexts[untrusted.Reason]
		if untrusted.Key != (trust.Pin{}) {
			f.Msg += " Its key is " + sealed.FormatKey(untrusted.Key) + "."
		}
		return f
	case errors.As(err, &refused):
		f := NewFailure(trafficerror.OfRefusal(tunnel.RefusedUpstream), c.URL)
		f.Msg = fmt.Sprintf("The agent of %s refused the connection: %s", c.URL, refused.Text)
		return f
	}
	f := c.classify(err)
	if f.Reason == ReasonBroken {
		f.Msg = fmt.Sprintf("The connection with the agent of %s broke while it was being sealed.", c.URL)
	}
	return f
}
