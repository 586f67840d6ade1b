// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Binds a second that one authtoken may make. Resumes after a restart of the service come in
// thousands and are not refused; they queue at a pace that the store can keep, so that a made-up
// resume secret is no way around the limit.
const (
	bindsPerSecond   = 20
	resumesPerSecond = 1000
)

type bindLimits struct {
	binds, resumes *rate.Limiter
}

func (s *Server) limit(ctx context.Context, credentialID string, resume bool) error {
	s.mu.Lock()
	l := s.limits[credentialID]
	if l == nil {
		l = &bindLimits{binds: rate.NewLimiter(bindsPerSecond, bindsPerSecond),
			resumes: rate.NewLimiter(resumesPerSecond, resumesPerSecond)}
		s.limits[credentialID] = l
	}
	s.mu.Unlock()
	tooMany := account.Errorf(account.CodeTooMany, "authtoken %s bound too many endpoints: at most %d a second",
		credentialID, bindsPerSecond)
	if resume {
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

// forgetLimits drops the limits of tokens that have not bound for a while: a full bucket says
// nothing.
func (s *Server) forgetLimits(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.limits {
		if l.binds.TokensAt(now) >= bindsPerSecond && l.resumes.TokensAt(now) >= resumesPerSecond {
			delete(s.limits, id)
		}
	}
}
