// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Renew implements tunnel.Handler for sessions that began with a ServiceAccount's token. The token
// of another subject ends the session; any other refusal leaves it the time that it has.
func (s *Server) Renew(ctx context.Context, ts *tunnel.Session, token string) (time.Time, error) {
	t := s.session(ts.ID())
	if t == nil {
		return time.Time{}, errUnknownSession()
	}
	if !s.tokenOf(t).Use().IsSubject() {
		return time.Time{}, &tunnel.Error{Code: tunnel.CodeInvalid,
			Msg: "the session began with no ServiceAccount token: there is nothing to renew"}
	}
	fresh, err := s.opt.Store.TunnelCredential(ctx, token)
	if err != nil {
		return time.Time{}, s.refusal(err)
	}
	if fresh.ID != t.credentialID || fresh.AccountID != t.accountID {
		problem := account.Errorf(account.CodeScope,
			"the session began with a token of subject %s, and this one is of %s", t.credentialID, fresh)
		s.log.Info("session ended: it was renewed with the token of another subject", "session", t.id, "credential",
			t.credentialID, "presented", fresh.ID)
		return time.Time{}, s.evictForbidden(t, problem)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := t.token.ServiceAccount; fresh.ServiceAccount.Expires > was.Expires {
		renewed := *t.token // the watchdog compares its rules and cluster
		renewed.ServiceAccount = fresh.ServiceAccount
		t.token = &renewed
	}
	return time.Unix(t.token.ServiceAccount.Expires, 0).UTC(), nil
}
