// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Down removes a session: its endpoints are offline.
func (s *Server) Down(ts *tunnel.Session, cause error) {
	s.mu.Lock()
	t := s.sessions[ts.ID()]
	delete(s.sessions, ts.ID())
	if t != nil {
		s.dropMembers(t)
	}
	s.mu.Unlock()
	if t == nil {
		return
	}
	s.log.Info("session down", "session", t.id, "role", t.hello.Role, "account", t.accountID, "cause", cause)
	if t.hello.Role != tunnel.RoleAgent {
		return
	}
	if err := s.recordSessionEnd(context.Background(), t); err != nil {
		s.log.Error("the endpoints of a lost session could not be marked offline; it is tried again", "session", t.id,
			"err",
			err)
		s.mu.Lock()
		s.unrecorded = append(s.unrecorded, t)
		s.mu.Unlock()
	}
}

// dropMembers removes all that the session has bound. mu must be held.
func (s *Server) dropMembers(t *session) {
	for _, h := range s.members {
		if h.session == t {
			s.dropMember(h)
		}
	}
	for _, h := range slices.Clone(s.tunnels[t.accountID]) {
		if h.session == t {
			s.dropTunnel(h)
		}
	}
}

// recordSessionEnd records that the session has ended, or that it has left this server.
func (s *Server) recordSessionEnd(ctx context.Context, t *session) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s.mu.Lock()
	end, recorded := t.end, t.recorded
	s.mu.Unlock()
	switch {
	case recorded:
		return nil
	case !s.replicated():
		return s.opt.Store.EndSession(ctx, t.accountID, t.id, end)
	case end.Reason == "": // it may go on with other servers
		return s.opt.Legs.LeaveSession(ctx, t.accountID, t.id, end)
	}
	if err := s.opt.Store.EndSession(ctx, t.accountID, t.id, end); err != nil {
		return err
	}
	s.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		s.publish(ctx, t.accountID, t.endCode, t.endMsg, t.id)
	})
	return nil
}

// retrySessionEnds records the ends that Down could not record: until then, the URLs of those
// sessions are taken.
func (s *Server) retrySessionEnds(ctx context.Context) {
	s.mu.Lock()
	lost := s.unrecorded
	s.unrecorded = nil
	s.mu.Unlock()
	for i, t := range lost {
		if s.retrySessionEnd(ctx, t) != nil {
			s.mu.Lock()
			s.unrecorded = append(s.unrecorded, lost[i:]...)
			s.mu.Unlock()
			return
		}
	}
}

// retrySessionEnd records the end of a session that left, unless it has joined again meanwhile.
func (s *Server) retrySessionEnd(ctx context.Context, t *session) error {
	if s.replicated() {
		s.joins.Lock()
		defer s.joins.Unlock()
		if now := s.session(t.id); now != nil && now != t {
			return nil
		}
	}
	return s.recordSessionEnd(ctx, t)
}

// evict tells a session why it ends, and closes it after evictGrace. end is recorded; its Reason is
// msg unless it has one.
func (s *Server) evict(t *session, code tunnel.Code, msg string, end account.SessionEnd) {
	end.Reason = cmp.Or(end.Reason, msg)
	s.setEndReason(t, code, msg, end)
	s.stop(t.tun, code, msg)
	s.closing.Go(func() {
		timer := time.NewTimer(evictGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.tun.Done():
		}
		_ = t.tun.Close()
	})
}

// evictForbidden evicts a session that its authtoken does not admit, and returns the refusal.
func (s *Server) evictForbidden(t *session, problem *account.Error) error {
	s.evict(t, tunnel.CodeForbidden, problem.Msg, account.SessionEnd{CausedByID: t.credentialID})
	return s.refusal(problem)
}

// closeReplaced closes a session without a STOP: its agent has connected again. Nothing chooses it
// from now on.
func (s *Server) closeReplaced(t *session, end account.SessionEnd) {
	s.setEndReason(t, "", end.Reason, end)
	s.mu.Lock()
	s.dropMembers(t)
	s.mu.Unlock()
	s.closing.Go(func() { _ = t.tun.Close() })
}

// setEndReason sets why a session ends, and what its client is told, unless a reason is set.
func (s *Server) setEndReason(t *session, code tunnel.Code, msg string, end account.SessionEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.end.Reason == "" {
		t.end, t.endCode, t.endMsg = end, code, msg
	}
}

// endTakenOver ends the session of this id, which may be "", because its agent connected again as
// t: without a STOP, for it is an earlier session of the same process. The other servers close it
// when they are told.
func (s *Server) endTakenOver(ctx context.Context, id string, t *session) {
	if id == "" || id == t.id {
		return
	}
	end := account.SessionEnd{Reason: takenOver + t.id, PrincipalID: t.credentialID}
	s.mu.Lock()
	from := s.sessions[id]
	s.mu.Unlock()
	if from != nil && from.tun != nil {
		s.closeReplaced(from, end)
	}
	if !s.replicated() {
		return
	}
	if err := s.opt.Store.EndSession(ctx, t.accountID, id, end); err != nil {
		s.log.Warn("the end of a replaced session could not be recorded", "session", id, "err", err)
	}
}

// takenOver begins the reason of a session whose agent connected again.
const takenOver = "its agent connected again, as "

// Wait returns when every session that the server closes is closed.
func (s *Server) Wait() { s.closing.Wait() }
