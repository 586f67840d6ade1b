// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/device"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// sessions passes on the requests of people who are logged in. It is safe for concurrent use.
type sessions struct {
	store     account.Logins
	live      *live.Registry
	locations *geo.Databases // locations is nil if no addresses are looked up.
}

// serve passes a request with a session on, or refuses it. It returns false, without an answer, for
// a request that has none.
func (s *sessions) serve(q *request, next trafficpolicy.AdmitFunc) bool {
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
		s.recordDevice(q, session)
		next(guarded, upstreamRequest(under, q.Config, session), &session.Identity)
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

// Identity headers of upstream requests.
const (
	headerUserID    = "Fairlead-Auth-User-Id"
	headerEmail     = "Fairlead-Auth-Email"
	headerName      = "Fairlead-Auth-Name"
	headerProvider  = "Fairlead-Auth-Provider"
	headerGroups    = "Fairlead-Auth-Groups"
	headerTruncated = "Fairlead-Auth-Groups-Truncated" // the number of groups that did not fit; absent for 0
)

// maxHeader is the size in bytes of the largest identity header. Groups that do not fit are left
// out, each as a whole, and counted.
const maxHeader = 4 << 10

// upstreamRequest returns the request for the upstream: without login cookies and without identity
// headers of the client, in any spelling, with headers that identify the person; session is nil for
// an anonymous request. It sends the groups that the config forwards.
func upstreamRequest(r *http.Request, c *trafficpolicy.LoginConfig, session *account.LiveSession) *http.Request {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return account.IsReservedHeader(name) })
	removeReservedConnectionTokens(r.Header)
	trafficpolicy.DropLoginCookies(r.Header)
	if session == nil {
		return r
	}
	id := &session.Identity
	for name, text := range map[string]string{headerUserID: id.ID, headerEmail: id.Email, headerName: id.Name,
		headerProvider: session.Provider.Name} {
		if text = escapeHeader(text, ""); text != "" && len(text) <= maxHeader {
			r.Header[name] = []string{text}
		}
	}
	groups, missing := joinGroups(id.Groups, c.ForwardsGroup)
	if groups != "" {
		r.Header[headerGroups] = []string{groups}
	}
	if missing > 0 {
		r.Header[headerTruncated] = []string{strconv.Itoa(missing)}
	}
	return r
}

// removeReservedConnectionTokens removes identity headers from Connection: as hop-by-hop headers
// they would not reach the upstream.
func removeReservedConnectionTokens(h http.Header) {
	lines := h["Connection"]
	for i, line := range lines {
		if !strings.Contains(strings.ToLower(line), "fairlead") {
			continue
		}
		var kept []string
		for token := range strings.SplitSeq(line, ",") {
			if token = strings.TrimSpace(token); token != "" && !account.IsReservedHeader(token) {
				kept = append(kept, token)
			}
		}
		lines[i] = strings.Join(kept, ", ")
	}
}

// joinGroups joins the groups that are forwarded by commas, and returns how many of them did not
// fit.
func joinGroups(groups []string, forwards func(string) bool) (joined string, truncated int) {
	var b strings.Builder
	for _, g := range groups {
		if g == "" || !forwards(g) {
			continue
		}
		g = escapeHeader(g, ",")
		if b.Len()+1+len(g) > maxHeader {
			truncated++
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(g)
	}
	return b.String(), truncated
}

// escapeHeader percent-encodes everything but printable ASCII, "%" and the characters in extra.
// Leading and trailing spaces are encoded too: headers lose them.
func escapeHeader(text, extra string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		edge := c == ' ' && (i == 0 || i == len(text)-1)
		if c < ' ' || c > '~' || c == '%' || edge || strings.IndexByte(extra, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
