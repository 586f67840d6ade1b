// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// checkInterval ensures that a deleted or changed credential or a deleted operator ends its
	// sessions and streams within a second.
	checkInterval = 500 * time.Millisecond
	// compareRounds is how many checkIntervals lie between complete comparisons with the store.
	compareRounds = 4
	// operatorSeenInterval is how often a connected forwarder records that its operator is in use,
	// while no manager does.
	operatorSeenInterval = time.Hour
	// startTimeout is how long a session may take from its accepted hello to up.
	startTimeout = time.Minute
	// evictGrace is how long a session without a credential may read the reason before it is
	// closed.
	evictGrace = 250 * time.Millisecond
)

// revokedMessage is what a client is told whose credential is not valid any more.
func revokedMessage(credentialID string) string {
	switch {
	case account.CredentialUse{ID: credentialID}.IsSubject():
		return "the ServiceAccount, its UID, or the key that has signed its token is no longer trusted: see " +
			"fairlead api clusters list"
	case strings.HasPrefix(credentialID, account.PrefixAPIKey+"-"):
		return "the API key was deleted or has expired"
	}
	return "the authtoken was deleted or has expired"
}

// Run compares the sessions with the store, ends those of revoked credentials and deleted
// operators, and retries failed writes to the store, until ctx is done. While the store does not
// answer, sessions continue.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	failing := false
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.forgetLimits(time.Now())
		s.forgetUnstarted(time.Now())
		s.retrySessionEnds(ctx)
		compare := s.Compare
		if round%compareRounds != 0 {
			compare = func(ctx context.Context) error { return s.compareAccess(ctx, "") }
		}
		err := compare(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Error("revoked credentials cannot be noticed", "err", err)
		}
		failing = err != nil
	}
}

// endRevoked ends the sessions whose credential was deleted, has expired or no longer admits their
// endpoints, and those of deleted operators; of one account unless it is "".
func (s *Server) endRevoked(ctx context.Context, accountID string) error {
	live := slices.DeleteFunc(s.liveSessions(), func(t *session) bool {
		return accountID != "" && t.accountID != accountID || s.isStopping(t)
	})
	if len(live) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	uses, distinct := s.credentialUses(live)
	tokens, err := s.opt.Store.LiveTunnelCredentials(ctx, distinct)
	if err != nil {
		return err
	}
	operators := make(map[string]bool) // by account and id
	for _, t := range live {
		token := tokens[uses[t]]
		if token == nil {
			s.endUnauthenticated(t, uses[t])
			continue
		}
		if problem := s.updateToken(t, token); problem != nil {
			s.log.Info("session ended: its credential's rules have changed", "session", t.id, "credential",
				t.credentialID)
			_ = s.evictForbidden(t, problem)
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
			e := errUnregistered(t.operatorID)
			s.evict(t, e.Code, e.Msg, account.SessionEnd{CausedByID: t.operatorID})
		}
	}
	return nil
}

// credentialUses returns the credential of each session, and all that there are.
func (s *Server) credentialUses(of []*session) (uses map[*session]account.CredentialUse,
	distinct []account.CredentialUse,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses = make(map[*session]account.CredentialUse, len(of))
	known := make(map[account.CredentialUse]bool)
	for _, t := range of {
		use := t.token.Use()
		if uses[t] = use; !known[use] {
			known[use] = true
			distinct = append(distinct, use)
		}
	}
	return uses, distinct
}

// endUnauthenticated ends a session whose credential is not valid any more, unless it was renewed
// meanwhile. The client of a token that was not renewed in time may begin a new session.
func (s *Server) endUnauthenticated(t *session, use account.CredentialUse) {
	if s.tokenOf(t).Use() != use {
		return
	}
	code, msg := tunnel.CodeTokenRevoked, revokedMessage(t.credentialID)
	if ends := use.Token.Ends(); !ends.IsZero() && !time.Now().Before(ends) {
		code, msg = tunnel.CodeUnavailable, "the ServiceAccount token of the session has expired, and was not renewed"
	}
	s.log.Info("session ended: its credential was deleted or has expired", "session", t.id, "credential",
		t.credentialID)
	s.evict(t, code, msg, account.SessionEnd{CausedByID: t.credentialID})
}

// updateToken gives the session its current credential. It returns an error when the rules no
// longer admit an endpoint or operator of the session.
func (s *Server) updateToken(t *session, token *account.TunnelCredential) *account.Error {
	s.mu.Lock()
	was := t.token
	changed := !slices.Equal(was.ACL, token.ACL) || was.ClusterUID != token.ClusterUID
	if changed {
		current := *token
		current.ServiceAccount = was.ServiceAccount // which may have been renewed meanwhile
		t.token = &current
	}
	s.mu.Unlock()
	switch {
	case !changed:
		return nil
	case was.ClusterUID != token.ClusterUID:
		return account.ErrOtherCluster(token.ID, cmp.Or(token.ClusterUID, "none"), was.ClusterUID)
	}
	return s.forbidden(t, token)
}

// forbiddenLocked returns an error when the credential's rules do not admit an endpoint or operator
// of the session. mu must be held.
func (s *Server) forbiddenLocked(t *session) *account.Error {
	token := t.token
	if t.operatorID != "" && !token.ACL.MayConnect(t.operatorID) {
		return errNoConnectRule(token, t.operatorID)
	}
	for _, h := range s.members {
		if h.session != t {
			continue
		}
		if problem := checkHolder(token, h.endpoint.Bindings[0], h.endpoint.URL, h.endpoint.Owner); problem != nil {
			return problem
		}
	}
	for _, h := range s.tunnels[t.accountID] {
		if h.session != t {
			continue
		}
		if problem := checkLabels(token, h.labels); problem != nil {
			return problem
		}
	}
	return nil
}

func (s *Server) isStopping(t *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.stopping
}

// operatorGone reports whether the session's operator was deleted. known caches the answers of one
// round.
func (s *Server) operatorGone(ctx context.Context, known map[string]bool, t *session) (bool, error) {
	key := t.accountID + " " + t.operatorID
	if gone, ok := known[key]; ok {
		return gone, nil
	}
	o, err := s.opt.Store.Operator(ctx, t.accountID, t.operatorID)
	gone := account.CodeOf(err) == account.CodeNotFound
	if err != nil && !gone {
		return false, err
	}
	if !gone && time.Since(o.LastSeenAt) > operatorSeenInterval {
		s.opt.Store.MarkOperatorSeen(o.ID)
	}
	known[key] = gone
	return gone, nil
}

// forgetUnstarted removes sessions whose first connection ended between hello and up.
func (s *Server) forgetUnstarted(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.sessions {
		if t.tun == nil && now.Sub(t.accepted) > startTimeout {
			delete(s.sessions, id)
			if t.joined && t.hello.Role == tunnel.RoleAgent {
				s.unrecorded = append(s.unrecorded, t) // the store counts this server among the session's
			}
		}
	}
}
