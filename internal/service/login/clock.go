// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"github.com/fairlead-dev/fairlead/internal/account"
)

// checkClock reports whether a login may go on by this server's clock, and answers the request when
// not. Whether a revocation came before or after the begin of a login is judged by the store's
// clock. All else is judged by this server's: the times of ID tokens and assertions, of which a
// clock that is behind admits expired ones; the age of a flow, which another server may have begun;
// and when the session ends, which then holds with all servers. Sessions that exist were judged
// before, so they are served.
//
// A step checks the clock before it uses anything up, so that the browser may repeat it later, or
// at another server.
func (q *request) checkClock() bool {
	err := q.opt.ClockChecker.CheckClock()
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
