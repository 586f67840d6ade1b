// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// shutDown lets open connections finish, and unbinds the endpoints before, so that the service
// deletes them instead of keeping them offline, unless Options.LeaveBound says otherwise. It
// returns false when the server could not be told.
func (a *Agent) shutDown() (told bool) {
	leave := a.opt.LeaveBound != nil && a.opt.LeaveBound()
	h := a.endpoints.shutDown()
	if h == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.opt.UnbindTimeout)
	defer cancel()
	var ids []string
	if !leave {
		answered := a.endpoints.waitFor(ctx, h, func() bool { return h.pending == 0 })
		var others bool
		if ids, others = a.endpoints.boundIDs(h); !answered || len(ids) == 0 {
			return ctx.Err() == nil && len(ids) == 0 && !others
		}
	}
	// Refuse new streams first: all that the edge has opened are here before the endpoint is
	// deleted, and the other members of a pool get the rest.
	err := h.session.Drain(a.opt.DrainTimeout)
	if err != nil {
		a.opt.Logger.Debug("shutting down", "error", err)
	}
	if err := unbindAll(ctx, h.session, ids); err != nil {
		a.opt.Logger.Debug("shutting down", "error", err)
		return false
	}
	if n := a.streams.open.count(); n > 0 {
		a.opt.Observer.Observe(Stopping{Connections: n, Timeout: a.opt.DrainTimeout})
		drain, cancel := context.WithTimeout(context.Background(), a.opt.DrainTimeout)
		defer cancel()
		a.endpoints.drain(drain, &a.streams.open)
	}
	return !leave || err == nil
}

// unbindAll unbinds concurrently, because the time is short.
func unbindAll(ctx context.Context, s *tunnel.Session, ids []string) error {
	errs := make([]error, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() { errs[i] = s.Unbind(ctx, id) })
	}
	asking.Wait()
	return errors.Join(errs...)
}
