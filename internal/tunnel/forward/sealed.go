// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// maxSealedAttempts bounds the agents that are tried for one sealed connection.
const maxSealedAttempts = 8

// ServeSealed is Serve for an endpoint whose agents seal connections, by what they trust. Nothing of the
// client's is read before an agent has opened the connection, so that another one can be tried.
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
func (r *Relay) openSealed(c *Conn, t *sealed.Trust) (*sealed.Conn, *Failure) {
	ctx, cancel := context.WithDeadline(r.Context, c.acceptedAt.Add(r.Timing.OpenTimeout))
	defer cancel()
	h := sealed.Header{URL: c.URL, ClientAddr: c.Header.ClientAddr, TraceID: c.Header.TraceID, Pod: c.Header.Pod}
	c.Header.Sealed = true
	var failed *Failure
	var tried []string
	for range maxSealedAttempts {
		c.Header.Tried = strings.Join(tried, ",")
		st, failure := r.openSealedStream(ctx, c)
		if failure != nil {
			if failed != nil {
				failure = failed
			}
			return nil, failure
		}
		hint, err := sealed.ReadHint(ctx, st)
		if err == nil {
			var conn *sealed.Conn
			if conn, err = t.Connect(ctx, st, h); err == nil {
				return conn, nil
			}
		}
		if failure := classifySealed(c, err); failed == nil || failure.Code != account.CodeNoEdge {
			failed = failure
		}
		if ctx.Err() != nil || hint == "" || slices.Contains(tried, hint) {
			return nil, failed
		}
		tried = append(tried, hint)
	}
	return nil, failed
}

// openSealedStream opens a stream that an agent has accepted.
func (r *Relay) openSealedStream(ctx context.Context, c *Conn) (*tunnel.Stream, *Failure) {
	for {
		st, session := r.tryOpenStream(c)
		if st == nil && session == nil {
			return nil, r.noEdgeFailure(c.URL)
		}
		if st != nil {
			err := st.WaitOpened(ctx)
			if err == nil {
				return st, nil
			}
			_ = st.Close()
			var refused *tunnel.RefusedError
			if !errors.As(err, &refused) || refused.Code != tunnel.RefusedDraining {
				return nil, c.classify(err)
			}
		}
		r.awaitRetry(c, session)
	}
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
