// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// checkEvery keeps the promise that a deleted or changed authtoken or a deleted operator ends its
	// sessions and streams within a second.
	checkEvery = 500 * time.Millisecond
	// seenEvery is how often a connected forwarder shows that its operator is in use, while no manager
	// registers it.
	seenEvery = time.Hour
	// startTimeout is how long a session may take from its accepted hello to up.
	startTimeout = time.Minute
	// leaveTime is how long a session without a credential gets to read why, before it is cut.
	leaveTime = 250 * time.Millisecond
)

// Run ends the sessions of credentials and operators that are gone, and does what the store could
// not do when it was asked, until ctx is done. When the store does not answer, sessions live on.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.forgetLimits(time.Now())
		s.forgetUnstarted(time.Now())
		s.loseAgain(ctx)
		err := errors.Join(s.endRevoked(ctx), s.endUngranted(ctx))
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Error("revoked credentials cannot be noticed", "err", err)
		}
		failing = err != nil
	}
}

// endRevoked ends the sessions whose authtoken was deleted or has expired, or no longer admits what
// they do, and those of deleted operators.
func (s *Server) endRevoked(ctx context.Context) error {
	live := slices.DeleteFunc(s.up(), func(t *session) bool { return s.stopped(t) })
	if len(live) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	ids := make([]string, 0, len(live))
	for _, t := range live {
		ids = append(ids, t.credentialID)
	}
	slices.Sort(ids)
	tokens, err := s.opt.Auth.LiveAuthtokens(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	operators := make(map[string]bool) // by account and id: gone
	for _, t := range live {
		token := tokens[t.credentialID]
		if token == nil {
			s.log.Info("session ended: its authtoken was deleted or has expired", "session", t.id, "credential", t.credentialID)
			s.evict(t, tunnel.CodeTokenRevoked, "the authtoken was deleted or has expired",
				account.SessionEnd{CausedByID: t.credentialID})
			continue
		}
		if problem := s.renew(t, token); problem != nil {
			s.log.Info("session ended: its authtoken's rules have changed", "session", t.id, "credential", t.credentialID)
			s.evict(t, tunnel.CodeForbidden, problem.Msg, account.SessionEnd{CausedByID: t.credentialID})
			continue
		}
		if t.operatorID == "" {
			continue
		}
		gone, err := s.operatorGone(ctx, operators, t)
		if err != nil {
			return err
		}
		if gone {
			s.log.Info("session ended: its operator was deleted", "session", t.id, "operator", t.operatorID)
			e := unregistered(t.operatorID)
			s.evict(t, e.Code, e.Msg, account.SessionEnd{CausedByID: t.operatorID})
		}
	}
	return nil
}

// renew gives the session its authtoken as it is now, or says what the session does that the
// token's rules no longer admit.
func (s *Server) renew(t *session, token *account.Authtoken) *account.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(t.token.ACL, token.ACL) {
		return nil
	}
	t.token = token
	if t.operatorID != "" && !token.MayConnect(t.operatorID) {
		return noConnectRule(t.credentialID, t.operatorID)
	}
	for _, h := range s.holdings {
		if h.session == t && !token.MayBind(h.endpoint.URL) {
			return noBindRule(t, h.endpoint.URL)
		}
	}
	for _, h := range s.tunnels[t.accountID] {
		if h.session == t && !token.MayBindLabels(h.labels) {
			return noLabelRule(t, h.labels)
		}
	}
	return nil
}

// evict tells a session why it ends, and cuts it a moment later whether it listens or not. end is
// what the record says; its Reason is msg unless it has one.
func (s *Server) evict(t *session, code tunnel.Code, msg string, end account.SessionEnd) {
	end.Reason = cmp.Or(end.Reason, msg)
	s.endsFor(t, end)
	s.stop(t.tun, code, msg)
	s.closing.Go(func() {
		timer := time.NewTimer(leaveTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.tun.Done():
		}
		_ = t.tun.Close()
	})
}

// endsFor notes why a session ends: the first reason is the one.
func (s *Server) endsFor(t *session, end account.SessionEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.end.Reason == "" {
		t.end = end
	}
}

func (s *Server) stopped(t *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.stopping
}

// operatorGone asks the store once for each operator of a round.
func (s *Server) operatorGone(ctx context.Context, known map[string]bool, t *session) (bool, error) {
	key := t.accountID + " " + t.operatorID
	if gone, ok := known[key]; ok {
		return gone, nil
	}
	o, err := s.opt.Operators.Operator(ctx, t.accountID, t.operatorID)
	gone := account.CodeOf(err) == account.CodeNotFound
	if err != nil && !gone {
		return false, err
	}
	if !gone && time.Since(o.LastSeenAt) > seenEvery {
		s.opt.Operators.MarkOperatorSeen(o.ID)
	}
	known[key] = gone
	return gone, nil
}

// forgetUnstarted drops sessions whose first connection died between hello and up.
func (s *Server) forgetUnstarted(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.sessions {
		if t.tun == nil && now.Sub(t.accepted) > startTimeout {
			delete(s.sessions, id)
		}
	}
}
