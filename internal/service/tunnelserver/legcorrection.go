// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// The database may have lost the latest writes, if a standby that does not replicate synchronously
// was promoted. Then a session that lives here may have no leg in the store, and the store may have
// legs of sessions that left or ended, whose endpoints would stay online and taken. An answer that
// was lost leaves such a leg behind, too. An agent whose binds the store lacks is told to begin a
// new session, and binds them again.

// legDifferences are the differences between the store's legs of this server and its sessions.
type legDifferences struct {
	missing map[string]bool // sessions that live here without a leg in the store
	stray   map[string]bool // sessions of which the store has a leg, and this server no connection
}

// correctLegs makes the store's legs of this server agree with its sessions. A difference is
// corrected when a second comparison finds it again, as legs come and go; after a failover missing
// legs are added at once, before another server ends the session for lack of a leg. failedOver
// reports whether the database has another history than at the comparison before.
func (s *Server) correctLegs(ctx context.Context) (failedOver bool, err error) {
	s.correcting.Lock()
	defer s.correcting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	own, err := s.opt.Legs.OwnLegs(ctx)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	failedOver = s.history != "" && own.History != s.history
	s.history = own.History
	now := s.compareLegsLocked(own.SessionIDs)
	s.mu.Unlock()
	if failedOver {
		s.log.Warn("the database has failed over: what it lacks of the sessions here is written again")
	}
	var add, remove []string
	for id := range now.missing {
		if failedOver || s.differences.missing[id] {
			add = append(add, id)
			delete(now.missing, id)
		}
	}
	for id := range now.stray {
		if !failedOver && s.differences.stray[id] {
			remove = append(remove, id)
			delete(now.stray, id)
		}
	}
	s.differences = now
	if len(add)+len(remove) == 0 {
		return failedOver, nil
	}
	return failedOver, s.writeLegs(ctx, add, remove)
}

// compareLegsLocked returns how the sessions of this server differ from those that the store has a
// leg of. mu must be held.
func (s *Server) compareLegsLocked(stored []string) legDifferences {
	d := legDifferences{missing: map[string]bool{}, stray: map[string]bool{}}
	for id, t := range s.sessions {
		if t.isStoredLocked() {
			d.missing[id] = true
		}
	}
	for _, id := range stored {
		delete(d.missing, id)
		if s.sessions[id] == nil {
			d.stray[id] = true
		}
	}
	return d
}

// writeLegs adds and removes legs of this server, except of sessions that have joined meanwhile.
func (s *Server) writeLegs(ctx context.Context, add, remove []string) error {
	s.joins.Lock()
	defer s.joins.Unlock()
	gone := make([]string, 0, len(remove))
	for _, id := range remove {
		if s.session(id) == nil {
			gone = append(gone, id)
		}
	}
	s.log.Warn("the store's connections of sessions were not those that this server has", "missing", len(add),
		"stray", len(gone))
	return s.opt.Legs.CorrectLegs(ctx, add, gone)
}

// lostBind is what the client of a session is told that has to bind again.
const lostBind = "the database has lost what the session has bound: begin a new one"

// isLost reports whether a member that a reading lacks was lost with a former history of the
// database, not unbound. mu must be held.
func (h *Member) isLost(held *account.SessionHoldings) bool {
	return h.history != "" && held.History != "" && h.history != held.History
}

// endLost ends a session whose agent has to bind again.
func (s *Server) endLost(t *session) {
	s.log.Warn("session ended: the database has lost what it has bound", "session", t.id, "account", t.accountID)
	s.evict(t, tunnel.CodeUnavailable, lostBind, account.SessionEnd{})
}
