// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Binds per second with one credential. Resumes after a restart of the service, and what an exporter
// binds, arrive by the thousand and are not refused; they wait for a rate that the store can sustain,
// so that an invented resume secret does not bypass the limit.
const (
	bindsPerSecond   = 20
	resumesPerSecond = 1000
)

type bindLimits struct {
	binds, resumes *rate.Limiter
}

// limitBinds returns CodeTooMany when the credential binds too often. A resume, and a bind of an
// exporter, waits instead.
func (s *Server) limitBinds(ctx context.Context, credentialID string, waits bool) error {
	s.mu.Lock()
	l := s.bindLimits[credentialID]
	if l == nil {
		l = &bindLimits{binds: rate.NewLimiter(bindsPerSecond, bindsPerSecond),
			resumes: rate.NewLimiter(resumesPerSecond, resumesPerSecond)}
		s.bindLimits[credentialID] = l
	}
	s.mu.Unlock()
	tooMany := account.Errorf(account.CodeTooMany, "authtoken %s bound too many endpoints: at most %d a second",
		credentialID, bindsPerSecond)
	if waits {
		if l.resumes.Wait(ctx) != nil {
			return tooMany
		}
		return nil
	}
	if !l.binds.Allow() {
		return tooMany
	}
	return nil
}

// forgetLimits removes the limits of tokens that have not bound for a while: a full bucket has no
// state.
func (s *Server) forgetLimits(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.bindLimits {
		if l.binds.TokensAt(now) >= bindsPerSecond && l.resumes.TokensAt(now) >= resumesPerSecond {
			delete(s.bindLimits, id)
		}
	}
}
