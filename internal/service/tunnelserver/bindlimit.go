// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"sync"
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

// bindLimiter limits how often a credential binds.
type bindLimiter struct {
	mu   sync.Mutex
	byID map[string]*bindLimits // by credential id
}

type bindLimits struct {
	binds, resumes *rate.Limiter
}

// limit returns CodeTooMany when the credential binds too often. A resume, and a bind of an
// exporter, waits instead.
func (b *bindLimiter) limit(ctx context.Context, credentialID string, waits bool) error {
	b.mu.Lock()
	l := b.byID[credentialID]
	if l == nil {
		l = &bindLimits{binds: rate.NewLimiter(bindsPerSecond, bindsPerSecond),
			resumes: rate.NewLimiter(resumesPerSecond, resumesPerSecond)}
		b.byID[credentialID] = l
	}
	b.mu.Unlock()
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

// forget removes the limits of tokens that have not bound for a while: a full bucket has no
// state.
func (b *bindLimiter) forget(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, l := range b.byID {
		if l.binds.TokensAt(now) >= bindsPerSecond && l.resumes.TokensAt(now) >= resumesPerSecond {
			delete(b.byID, id)
		}
	}
}
