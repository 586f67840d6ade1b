// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// maxSealedAttempts bounds the agents that are tried for one sealed connection, which its time does before,
// unless a hostile service answers at once and without end.
const maxSealedAttempts = 64

// JoinSealed relays the client's connection over one that OpenSealed returned, until it has ended.
func (r *Relay) JoinSealed(c *Conn, conn *sealed.Conn) {
	c.Stats.Opened(time.Now())
	moved, err := relay.Join(r.Context, c.Connection, conn, relay.Options{})
	c.Stats.Moved(moved.AToB, moved.BToA, err != nil)
}

// OpenSealed opens a connection to an endpoint whose agents seal connections; by decides which of them
// may answer. Nothing of the client's is read, so that one agent after the other can be tried. What the
// first one that was reached answered says more than that there is no other. One that needed most of
// its time is tried again when there is no other.
func (r *Relay) OpenSealed(c *Conn, by *sealed.Trust) (*sealed.Conn, *Failure) {
	until := c.acceptedAt.Add(r.Timing.OpenTimeout)
	ctx, cancel := context.WithDeadlineCause(r.Context, until, trafficerror.ErrAgentTimeout)
	defer cancel()
	h := c.sealedHeader()
	c.Header.Sealed = true
	if conn := r.openSpare(ctx, c, by, h); conn != nil {
		return conn, nil
	}
	var failed *Failure
	var tried []string
	anySlow, last := false, false
	for attempts := 0; attempts < maxSealedAttempts; {
		c.Header.Tried = strings.Join(tried, ",")
		st, failure := r.openSealedStream(c)
		if failure != nil {
			return nil, cmp.Or(failed, failure)
		}
		if h.Deadline = time.Until(until); !last {
			h.Deadline = min(h.Deadline, max(h.Deadline/2, minSealedAttempt))
		}
		conn, err := st.connect(ctx, by, h)
		var refused *tunnel.RefusedError
		switch isRefused := errors.As(err, &refused); {
		case err == nil:
			return conn, nil
		case isRefused && refused.Code == tunnel.RefusedSealed: // by the agent, as an older replica dropped the flag
			failed = cmp.Or(failed, cannotCarryFailure(c))
			fallthrough
		case isRefused && refused.Code == tunnel.RefusedDraining:
			r.awaitRetry(c, st.Session())
			continue
		case isRefused && anySlow && !last: // by the edge: there is no other agent
			tried, last = nil, true
			continue
		case isRefused:
			return nil, cmp.Or(failed, c.classify(err))
		}
		attempts++ // a refusal of an edge that drains is none: SessionDeadline bounds those
		failed = st.classify(c, err)
		switch {
		case ctx.Err() != nil:
			return nil, failed
		case st.isLost(err): // the replica, on the way to an agent that may be good
			r.awaitRetry(c, st.Session())
			continue
		case st.hint == "": // it was reset before it was named; the edge now prefers others
			continue
		case slices.Contains(tried, st.hint):
			return nil, failed
		}
		anySlow = anySlow || time.Since(st.named) > h.Deadline*3/4
		tried = append(tried, st.hint)
	}
	return nil, failed
}

// sealedHeader returns what the agent is told of the client, inside the seal.
func (c *Conn) sealedHeader() sealed.Header {
	h := sealed.Header{URL: c.URL, ClientAddr: c.Header.ClientAddr, TraceID: c.Header.TraceID,
		TrustsForwarding: c.Header.TrustsForwarding}
	if c.Header.Pod != nil {
		pod := *c.Header.Pod
		pod.Annotations, pod.AnnotationsCut = nil, false // for policies of the edge; they could exceed a frame
		h.Pod = &pod
	}
	return h
}

// openSealedStream opens a stream, on which the seal may begin at once.
func (r *Relay) openSealedStream(c *Conn) (*sealedStream, *Failure) {
	st, failure := r.openStream(c)
	switch {
	case failure != nil:
		return nil, failure
	case !slices.Contains(st.Session().Welcome().Features, tunnel.FeatureSealed):
		_ = st.Abort()
		return nil, cannotCarryFailure(c)
	}
	_ = st.SetReadDeadline(time.Time{}) // contexts end the wait
	return &sealedStream{Stream: st}, nil
}

func cannotCarryFailure(c *Conn) *Failure {
	f := NewFailure(trafficerror.OfRefusal(tunnel.RefusedNotSealed), c.URL)
	f.Msg = fmt.Sprintf("The service cannot carry sealed connections to %s: update fairlead-server.", c.URL)
	return f
}

// minSealedAttempt is how long an agent gets for its answer, if there is as much time: half of what is
// left, and all of it once there is no other agent.
const minSealedAttempt = 500 * time.Millisecond

// sealedStream is a stream whose first bytes are the edge's hint: the id of the agent's endpoint. From
// then on the agent's time runs.
type sealedStream struct {
	*tunnel.Stream

	given  time.Duration // the agent's time
	giveUp context.CancelCauseFunc
	hint   string      // "" before the first read
	named  time.Time   // when the edge named the agent
	timer  *time.Timer // calls giveUp
}

// Read reads what follows the hint.
func (s *sealedStream) Read(p []byte) (int, error) {
	if s.hint == "" {
		var err error
		if s.hint, err = sealed.ReadHint(s.Stream); err != nil {
			return 0, err
		}
		giveUp := s.giveUp
		s.named = time.Now()
		s.timer = time.AfterFunc(s.given, func() { giveUp(trafficerror.ErrAgentTimeout) })
	}
	return s.Stream.Read(p)
}

// connect seals the connection and opens it. It gives up when the agent's time is over, and when the
// replica does not respond and another one does.
func (s *sealedStream) connect(ctx context.Context, by *sealed.Trust, h sealed.Header) (*sealed.Conn, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer s.OnUnresponsive(func() {
		if anotherReplicaServes(s.Stream) {
			giveUp(tunnel.ErrUnresponsive)
		}
	})()
	s.given, s.giveUp = h.Deadline, giveUp
	defer func() {
		if s.timer != nil {
			s.timer.Stop()
		}
		s.timer, s.giveUp = nil, nil // the stream lives as long as the connection
	}()
	return by.Connect(ctx, s, h)
}

// Distrust aborts the stream since the agent is not trusted, which the service tells the account.
func (s *sealedStream) Distrust() error { return s.Reset(tunnel.ResetUntrusted) }

// isLost reports whether the error of connect is the loss of the replica.
func (s *sealedStream) isLost(err error) bool {
	var untrusted *sealed.UntrustedError
	var refused *sealed.RefusedError
	var reset *tunnel.ResetError
	return !errors.As(err, &untrusted) && !errors.As(err, &refused) && !errors.As(err, &reset) &&
		!errors.Is(err, trafficerror.ErrAgentTimeout)
}

var untrustedTexts = map[sealed.Reason]string{
	sealed.KeyUnknown:   "no authority that is trusted for it has signed its certificate.",
	sealed.KeyChanged:   "its key is none of those that are pinned.",
	sealed.NameMismatch: "its certificate is for another account or other endpoints.",
	sealed.Expired:      "its certificate has expired, or is not valid yet.",
	sealed.NotSealed:    "it does not speak the protocol of sealed endpoints.",
}

// classify returns the failure for the error of an agent's, or of what pretended to be one.
func (s *sealedStream) classify(c *Conn, err error) *Failure {
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
	case s.hint == "" && errors.Is(err, trafficerror.ErrAgentTimeout):
		err = os.ErrDeadlineExceeded // the edge has not answered
	case errors.Is(err, trafficerror.ErrAgentTimeout):
		return NewFailure(trafficerror.Of(err), c.URL)
	}
	f := c.classify(err)
	if f.Reason == ReasonBroken {
		f.Msg = fmt.Sprintf("The connection with the agent of %s broke while it was being sealed.", c.URL)
	}
	return f
}
