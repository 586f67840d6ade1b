// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"net/http"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/device"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// sessions passes requests of people on who are logged in. It is safe for concurrent use.
type sessions struct {
	store     account.Logins
	live      *live.Registry
	locations *geo.Databases // nil = not looked up
}

// serve passes a request with a session on, or refuses it. It returns false, without an answer, for
// a request that has none.
func (s *sessions) serve(
	q *request, next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult),
) bool {
	hash := q.sessionTokenHash()
	if hash == nil {
		return false
	}
	guarded, under, cut := live.Abortable(q.w, q.r, q.Conn.Aborter, s.live.Lease())
	entry := s.live.Register(cut) // before the session is read, so that SetSession reports a revocation in between
	defer entry.Done()
	session, err := s.admit(q, entry, hash)
	switch {
	case err != nil:
		q.writeError(err)
	case session == nil:
		return false
	case !InAuthorizedGroup(q.Config, session.Identity.Groups):
		q.person = session.Identity
		shown := "You are logged in, but this endpoint admits members of certain groups only. Open " +
			q.action.URL(PathLogout) + " to log out, and log in as another person."
		q.reportFailure(account.CodeLoginFailed, shown, errNoGroup)
		q.writePage(account.CodeLoginFailed, shown)
	default:
		result := trafficpolicy.LoginResult{Identity: session.Identity, Provider: session.Provider}
		result.Identity.ID = session.UserID
		s.recordDevice(q, session)
		next(guarded, upstreamRequest(under, q.Config, &result), result)
	}
	return true
}

// recordDevice records a request from another address or browser than the session's last one.
func (s *sessions) recordDevice(q *request, session *account.LiveSession) {
	last, ip := session.LastUse.Device, q.Conn.ClientIP.Unmap().WithZone("")
	if ip.IsValid() && last.IPAddress == ip.String() && last.UserAgent.Raw == q.r.UserAgent() {
		return // the usual case, without parsing the header and looking up the address
	}
	s.store.RecordDevice(session, s.device(q))
}

// device describes the browser that sent the request.
func (s *sessions) device(q *request) account.Device {
	return device.FromRequest(q.r, q.Conn.ClientIP, s.locations.Lookup(q.Conn.ClientIP))
}

// admit reads the session of a token and names it to the entry. It returns nil when there is none
// that may be served, and CodeUnavailable while the lease is not valid.
func (s *sessions) admit(q *request, entry *live.Entry, hash []byte) (*account.LiveSession, error) {
	if !s.live.Lease().Valid() {
		return nil, unavailable("reading a session", errNoLease)
	}
	session, err := s.find(q, hash)
	if err != nil || session == nil {
		return nil, err
	}
	if !entry.SetSession(session.ID) {
		return nil, nil //nolint:nilnil // documented
	}
	if entry.MissedComparison() {
		if session, err = s.find(q, hash); err != nil || session == nil {
			return nil, err
		}
	}
	if !s.live.Lease().Valid() { // it may have ended during the reading
		return nil, unavailable("reading a session", errNoLease)
	}
	return session, nil
}

// errNoLease is the cause of CodeUnavailable while the store has not answered this server for long.
var errNoLease = errors.New("the store has not answered this server for longer than the lease")

// find reads the session of a token, always from the store. It returns nil when there is none that
// is valid for this action.
func (s *sessions) find(q *request, hash []byte) (*account.LiveSession, error) {
	session, err := s.store.LiveSession(q.r.Context(), q.action.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, unavailable("reading a session", err)
	case session.Scope != q.scope():
		return nil, nil //nolint:nilnil // another action's or provider's session
	}
	return session, nil
}

// errNoGroup is the reason of a failure for a person in none of the groups of the config.
var errNoGroup = errors.New("the person is in none of the groups of authorized_groups")

// InAuthorizedGroup reports whether the config admits a person with these groups.
func InAuthorizedGroup(c *trafficpolicy.LoginConfig, groups []string) bool {
	allowed := c.AuthorizedGroups
	return len(allowed) == 0 || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(allowed, g) })
}
