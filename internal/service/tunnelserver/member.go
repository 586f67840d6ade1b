// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Member is an endpoint or a labelled tunnel that a live session has bound: one member of the pool
// of its URL or labels. A new bind of the endpoint makes a new Member, so the pointer tells one
// bind from the next.
type Member struct {
	members  *members
	endpoint account.Endpoint
	// endpoint with the pool's traffic policy, set by a later bind of another member; nil = its own
	pooled  atomic.Pointer[account.Endpoint]
	session *session
	// when the bind was asked of the store; with several servers, when the row was written, so that
	// they agree
	asked time.Time
	// read from the store, not bound here: whether the agent had the answer to its bind is not known
	attached bool
	bindID   string // the bind here; "" = unknown
	ctx      context.Context
	cancel   context.CancelFunc

	labels     map[string]string // a labelled tunnel's
	resumeHash []byte            // a labelled tunnel's; the store has those of endpoints

	// guarded by registry.mu
	conns         int    // connections that Choose counted and that are not released
	lastChosen    uint64 // chooseCount when it was last chosen; 0 = never
	policyVersion int64  // resource version of the bind whose traffic policy applies
	// the version of the endpoint's row, as it was last written or read here
	version account.ResourceVersion
	history string // the history of the database that had it, as far as is known
}

// Endpoint returns the endpoint as its agent bound it, with the traffic policy of its pool. It must
// not be changed.
func (h *Member) Endpoint() *account.Endpoint {
	if ep := h.pooled.Load(); ep != nil {
		return ep
	}
	return &h.endpoint
}

// Context is done when the session no longer has the endpoint: it was unbound, taken over, or the
// session ended.
func (h *Member) Context() context.Context { return h.ctx }

// Open opens a stream to the agent, without waiting for its answer. The error is
// CodeEndpointOffline when the session has ended, CodeAgentSilent when the agent does not respond.
func (h *Member) Open(ctx context.Context, header tunnel.OpenHeader) (*tunnel.Stream, error) {
	if h.ctx.Err() != nil {
		return nil, peers.ErrOffline(h.endpoint.ID, nil)
	}
	st, err := h.session.tun.Open(ctx, header)
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return nil, peers.ErrUnresponsive("the agent of endpoint " + h.endpoint.ID + " does not respond")
	case err != nil:
		return nil, peers.ErrOffline(h.endpoint.ID, err)
	}
	return st, nil
}

// Report sends a request line to the agent's screen; it never blocks.
func (h *Member) Report(line tunnel.RequestLine) { h.session.tun.SendRequestLine(line) }

// Release ends a connection that Choose counted.
func (h *Member) Release() {
	h.members.mu.Lock()
	defer h.members.mu.Unlock()
	h.conns--
}

// canServe reports whether the member has the labels of the query, and streams can be opened to it.
func (h *Member) canServe(q peers.Query) bool {
	return account.HasLabels(h.labels, q.Labels) && h.session.tun.CanOpen()
}

// lessLoaded reports whether h is preferred to o for the next connection. registry.mu must be held.
func (h *Member) lessLoaded(o *Member) bool {
	return cmp.Or(cmp.Compare(h.conns, o.conns), cmp.Compare(h.lastChosen, o.lastChosen)) < 0
}

// isLost reports whether a member that a reading lacks was lost with a former history of the
// database, not unbound. registry.mu must be held.
func (h *Member) isLost(held *account.SessionHoldings) bool {
	return h.history != "" && held.History != "" && h.history != held.History
}

// sameBind reports whether the row is the bind of the member. The traffic policy of a pool may have
// changed since the bind, and is not compared.
func (h *Member) sameBind(ep account.Endpoint) bool {
	mine := *h.Endpoint()
	for _, e := range []*account.Endpoint{&mine, &ep} {
		e.CreatedAt, e.UpdatedAt, e.ResourceVersion = time.Time{}, time.Time{}, account.ResourceVersion{}
		if e.SharesURL() {
			e.TrafficPolicy = ""
		}
	}
	return reflect.DeepEqual(mine, ep)
}

// newer reports whether version a is later than b.
func newer(a, b account.ResourceVersion) bool {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq)) > 0
}
