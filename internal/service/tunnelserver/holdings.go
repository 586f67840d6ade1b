// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// With several servers, a session binds and unbinds over any leg. So a server reads what its
// sessions have bound from the store: when a leg comes up, when another server publishes a change,
// and in comparisons. Two rules keep an older reading from undoing a newer change:
//
//   - A reading and its application exclude the binds and unbinds of the session on this server
//     (session.holdings). So what is applied was read after the last of them, and every change on
//     another server is followed by a reading that begins after its commit.
//   - Of two sessions that have bound one endpoint, the one with the higher resource version has it:
//     the other's row was read, or its bind answered, before the takeover.

// ApplySessions replaces the members of these sessions by those in the store, and ends the sessions
// that are over with code and msg. Without a code they are closed without a STOP; without either
// they are left to the next comparison, as the server that ended them publishes the reason.
// Sessions without a connection here are skipped.
func (s *Server) ApplySessions(ctx context.Context, ids []string, code tunnel.Code, msg string) error {
	var errs []error
	for _, id := range ids {
		if t := s.storedSession(id); t != nil {
			errs = append(errs, s.applySession(ctx, t, code, msg))
		}
	}
	return errors.Join(errs...)
}

// LeaveSessions closes the agents' sessions of these ids on this server, which cannot compare them
// with the store. They go on with other servers.
func (s *Server) LeaveSessions(ids []string) {
	for _, id := range ids {
		if t := s.storedSession(id); t != nil {
			s.log.Info("session closed: it has changed, and the store does not answer", "session", id)
			s.closeReplaced(t, account.SessionEnd{})
		}
	}
}

// storedSession returns the agent's session of this id that is up and in the store, or nil.
func (s *Server) storedSession(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.sessions[id]; t != nil && t.isStoredLocked() {
		return t
	}
	return nil
}

// isStoredLocked reports whether the session is an agent's that is up, in the store and not told to
// stop. Server.mu must be held.
func (t *session) isStoredLocked() bool {
	return t.hello.Role == tunnel.RoleAgent && t.tun != nil && t.stored && !t.stopping
}

// refreshHoldings reads what the session holds. It does nothing without other servers. After an
// error, the next comparison does it.
func (s *Server) refreshHoldings(ctx context.Context, t *session) {
	if !s.replicated() {
		return
	}
	if err := s.applySession(ctx, t, "", ""); err != nil {
		s.log.Warn("the endpoints of a session could not be read; it is tried again", "session", t.id, "err", err)
	}
}

func (s *Server) applySession(ctx context.Context, t *session, code tunnel.Code, msg string) error {
	t.holdings.Lock()
	defer t.holdings.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held, err := s.opt.Legs.SessionHoldings(ctx, t.accountID, t.id)
	if account.CodeOf(err) == account.CodeNotFound {
		s.endOver(t, code, msg)
		return nil
	}
	if err != nil {
		return err
	}
	lost, problem := s.applyHoldings(t, held)
	switch {
	case problem != nil:
		s.log.Info("session ended: its authtoken's rules do not admit what it has bound", "session", t.id,
			"credential", t.credentialID)
		_ = s.evictForbidden(t, problem)
	case lost:
		s.endLost(t)
	}
	return nil
}

// endOver ends a session that is over in the store.
func (s *Server) endOver(t *session, code tunnel.Code, msg string) {
	s.mu.Lock()
	ends := s.sessions[t.id] == t && t.isStoredLocked() && (code != "" || msg != "")
	if ends {
		t.recorded = true
	}
	s.mu.Unlock()
	switch {
	case !ends:
	case code == "":
		s.closeReplaced(t, account.SessionEnd{Reason: msg})
	default:
		s.log.Info("session ended: it is over in the store", "session", t.id, "code", code)
		s.evict(t, code, msg, account.SessionEnd{})
	}
}

// applyHoldings makes the session's members those of the reading. It reports whether the database
// has lost one, which stays until the session has ended, and returns an error when the authtoken
// does not admit one.
func (s *Server) applyHoldings(t *session, held *account.SessionHoldings) (lost bool, problem *account.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[t.id] != t { // it went down meanwhile
		return false, nil
	}
	kept := make(map[string]bool, len(held.Endpoints)+len(held.Tunnels))
	for _, ep := range held.Endpoints {
		kept[ep.ID] = true
		s.applyEndpoint(t, ep)
		if h := s.members[ep.ID]; h.session == t {
			h.history = held.History
		}
	}
	for _, h := range s.members {
		switch {
		case h.session != t || kept[h.endpoint.ID]:
		case h.isLost(held):
			lost = true
		default:
			s.dropMember(h)
		}
	}
	lost = s.applyTunnels(t, held, kept) || lost
	s.signalChange()
	return lost, s.forbiddenLocked(t)
}

// applyEndpoint adds a member of the row or updates the one that there is. A rebind makes a new
// member, as it does where it was asked; what others changed, the pool's traffic policy, does not.
// mu must be held.
func (s *Server) applyEndpoint(t *session, ep account.Endpoint) {
	old := s.members[ep.ID]
	if old != nil && old.session != t && newer(old.version, ep.ResourceVersion) {
		return
	}
	if old == nil || old.session != t || !old.sameBind(ep) {
		h := s.newMember(t, ep)
		h.attached = true
		s.putMember(h)
		return
	}
	old.version, old.policyVersion = ep.ResourceVersion, max(old.policyVersion, ep.ResourceVersion.Seq)
	old.pooled.Store(&ep)
	s.syncPoolPolicy(poolKeyOf(&ep))
}

// sameBind reports whether the row is the bind of the member, which may have got the traffic policy
// of another member of its pool since.
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

// applyTunnels makes the session's labelled tunnels those of the reading, and adds their ids to
// kept. It reports whether the database has lost one. mu must be held.
func (s *Server) applyTunnels(t *session, held *account.SessionHoldings, kept map[string]bool) (lost bool) {
	have := make(map[string]bool)
	for _, h := range s.tunnels[t.accountID] {
		have[h.endpoint.ID] = h.session == t
	}
	for i := range held.Tunnels {
		started := &held.Tunnels[i]
		kept[started.ID] = true
		if !have[started.ID] {
			s.tunnels[t.accountID] = append(s.tunnels[t.accountID], s.newTunnel(t, started, nil))
		}
	}
	for _, h := range slices.Clone(s.tunnels[t.accountID]) {
		switch {
		case h.session != t:
		case kept[h.endpoint.ID]:
			h.history = held.History
		case h.isLost(held):
			lost = true
		default:
			s.dropTunnel(h)
		}
	}
	return lost
}

// newer reports whether version a is later than b.
func newer(a, b account.ResourceVersion) bool {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq)) > 0
}
