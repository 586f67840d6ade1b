// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"cmp"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
)

// ClockChecker knows the clocks of the other servers.
type ClockChecker interface {
	// CheckClock returns an error while this machine's clock is too far from theirs, and logins are
	// refused.
	CheckClock() error
}

// admission decides whether a step of a login may be taken now. It is safe for concurrent use.
type admission struct {
	limits map[string]*clientlimit.Rate // by the name of the step
	clock  ClockChecker
}

func newAdmission(o *Options) *admission {
	a := &admission{limits: map[string]*clientlimit.Rate{}, clock: o.ClockChecker}
	for _, step := range []string{PathLogin, PathCallback, PathACS, PathLogout, PathMetadata} {
		a.limits[step] = clientlimit.NewRate(cmp.Or(o.Rate, 10), cmp.Or(o.Burst, 100))
	}
	return a
}

// checkRateLimit reports whether the client may take the step now, and answers the request when
// not.
func (a *admission) checkRateLimit(q *request, step string) bool {
	if a.limits[step].Allow(q.Conn.ClientIP, time.Now()) {
		return true
	}
	q.writeRateLimited()
	return false
}

// checkClock reports whether a login may go on by this server's clock, and answers the request when
// not. Whether a revocation came before or after the begin of a login is judged by the store's
// clock. All else is judged by this server's: the times of ID tokens and assertions, of which a
// clock that is behind admits expired ones; the age of a flow, which another server may have begun;
// and when the session ends, which then holds with all servers. Sessions that exist were judged
// before, so they are served.
//
// A step checks the clock before it uses anything up, so that the browser may repeat it later, or
// at another server.
func (a *admission) checkClock(q *request) bool {
	err := a.clock.CheckClock()
	if err == nil {
		return true
	}
	q.log.Warn("login refused", "endpoint", q.Endpoint.ID, "url", q.Endpoint.URL, "auth_id", q.Config.AuthID,
		"err", err)
	const shown = "You cannot log in through this server at the moment, because its clock is wrong. " +
		"Try again in a moment."
	q.reportFailure(account.CodeUnavailable, shown, err)
	q.w.Header().Set("Retry-After", "2")
	q.writePage(account.CodeUnavailable, shown)
	return false
}
