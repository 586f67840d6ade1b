// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// bindOnTwo binds an endpoint on a replica, by a session that another joins.
func (h *history) bindOnTwo(r, other *replica, url string) (bound account.Endpoint) {
	h.T.Helper()
	session := h.sessionOn(r)
	h.repeat("the other replica to join", func() error { return other.join(session) })
	h.repeat("an endpoint", func() error {
		got, err := r.Bind(h.T.Context(), h.Request(session, url))
		if err == nil {
			bound = got.Endpoint
			h.confirm(bound)
		}
		return err
	})
	return bound
}

// sessionOn returns a new session of the replica.
func (h *history) sessionOn(r *replica) (id string) {
	h.T.Helper()
	h.repeat("a session on the replica", func() error {
		id = account.NewID(account.PrefixTunnelSession, time.Now())
		return r.StartSession(h.T.Context(), account.TunnelSession{ID: id, AccountID: h.AccountID,
			Credential: account.Ref{ID: h.TokenID}, IP: "203.0.113.9", JoinHash: joinHash(id)})
	})
	return id
}

// repeat repeats the call until no fault refuses it.
func (h *history) repeat(what string, call func() error) {
	h.T.Helper()
	wait.Until(h.T, what, func() bool { return !h.unavailable(call()) })
}
