// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/device"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// authenticate passes a request with a session on, and handles any other as unauthenticated.
func (q *request) authenticate(next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult)) {
	hash := q.sessionTokenHash()
	if hash == nil {
		q.unauthenticated(next)
		return
	}
	guarded, under, cut := live.Abortable(q.w, q.r, q.Conn.Abort, q.opt.Live.Lease())
	entry := q.opt.Live.Register(cut) // before the session is read, so that SetSession reports a revocation in between
	defer entry.Done()
	session, err := q.admit(entry, hash)
	switch {
	case err != nil:
		q.writeError(err)
	case session == nil:
		entry.Done()
		q.unauthenticated(next)
	case !InAuthorizedGroup(q.Config, session.Identity.Groups):
		q.person = session.Identity
		shown := "You are logged in, but this endpoint admits members of certain groups only. Open " +
			q.action.URL(PathLogout) + " to log out, and log in as another person."
		q.reportFailure(account.CodeLoginFailed, shown, errNoGroup)
		q.writePage(account.CodeLoginFailed, shown)
	default:
		result := trafficpolicy.LoginResult{Identity: session.Identity, Provider: session.Provider}
		result.Identity.ID = session.UserID
		q.recordDevice(session)
		next(guarded, upstreamRequest(under, q.Config, &result), result)
	}
}

// recordDevice records a request from another address or browser than the session's last one.
func (q *request) recordDevice(s *account.LiveSession) {
	last, ip := s.LastUse.Device, q.Conn.ClientIP.Unmap().WithZone("")
	if ip.IsValid() && last.IPAddress == ip.String() && last.UserAgent.Raw == q.r.UserAgent() {
		return // the usual case, without parsing the header and looking up the address
	}
	q.opt.Store.RecordDevice(s, q.device())
}

// device describes the browser that sent the request.
func (q *request) device() account.Device {
	return device.FromRequest(q.r, q.Conn.ClientIP, q.opt.Locations.Lookup(q.Conn.ClientIP))
}

// admit reads the session of a token and names it to the entry. It returns nil when there is none
// that may be served, and CodeUnavailable while the lease is not valid.
func (q *request) admit(entry *live.Entry, hash []byte) (*account.LiveSession, error) {
	if !q.opt.Live.Lease().Valid() {
		return nil, unavailable("reading a session", errNoLease)
	}
	session, err := q.lookUpSession(hash)
	if err != nil || session == nil {
		return nil, err
	}
	if !entry.SetSession(session.ID) {
		return nil, nil //nolint:nilnil // documented
	}
	if entry.MissedComparison() {
		if session, err = q.lookUpSession(hash); err != nil || session == nil {
			return nil, err
		}
	}
	if !q.opt.Live.Lease().Valid() { // it may have ended during the reading
		return nil, unavailable("reading a session", errNoLease)
	}
	return session, nil
}

// errNoLease is the cause of CodeUnavailable while the store has not answered this server for long.
var errNoLease = errors.New("the store has not answered this server for longer than the lease")

// lookUpSession reads the session of a token, always from the store. It returns nil when there is
// none that is valid for this action.
func (q *request) lookUpSession(hash []byte) (*account.LiveSession, error) {
	s, err := q.opt.Store.LiveSession(q.r.Context(), q.action.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, unavailable("reading a session", err)
	case s.Scope != q.scope():
		return nil, nil //nolint:nilnil // another action's or provider's session
	}
	return s, nil
}

// errNoGroup is the reason of a failure for a person in none of the groups of the config.
var errNoGroup = errors.New("the person is in none of the groups of authorized_groups")

// InAuthorizedGroup reports whether the config admits a person with these groups.
func InAuthorizedGroup(c *trafficpolicy.LoginConfig, groups []string) bool {
	allowed := c.AuthorizedGroups
	return len(allowed) == 0 || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(allowed, g) })
}

// unauthenticated answers a request without a session. A CORS preflight passes if the config allows
// it, a navigation is redirected to the provider, and any other request gets CodeLoginNeeded.
func (q *request) unauthenticated(next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult)) {
	switch {
	case q.Config.AllowCORSPreflight && isPreflight(q.r):
		next(q.w, upstreamRequest(q.r, q.Config, nil), trafficpolicy.LoginResult{})
	case isFramed(q.r):
		q.writeFramedPage()
	case isNavigation(q.r):
		if err := q.startFlow(returnPath(trafficpolicy.ClientRequestURI(q.r)), 0); err != nil {
			q.writeError(err)
		}
	case isFormPost(q.r): // a redirect would lose what was filled in
		q.writePage(account.CodeLoginNeeded, "You are not logged in, so what you sent was not passed on. Open "+
			q.action.URL(PathLogin)+
			" in another tab and log in; then reload this page, and your browser sends it again.")
	default:
		q.writePage(account.CodeLoginNeeded, "This endpoint asks for a login. Open "+q.action.EndpointURL+
			" in a browser and log in.")
	}
}

// isPreflight reports whether r is a CORS preflight request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Upgrade") == "" && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "" && r.ContentLength == 0
}

// isNavigation reports whether a browser navigates to a page, in contrast to a request of a script
// or program.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && acceptsPage(r) && !isPrefetch(r)
}

// isFramed reports whether a browser navigates a frame within another page.
func isFramed(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "iframe", "frame", "embed", "object":
		return r.Method == http.MethodGet
	}
	return false
}

// isFormPost reports whether a browser posts a form.
func isFormPost(r *http.Request) bool { return r.Method == http.MethodPost && acceptsPage(r) }

// acceptsPage reports whether r is a navigation, of any method, whose response a person will see.
func acceptsPage(r *http.Request) bool {
	if r.Header.Get("Upgrade") != "" || r.Header.Get("Sec-Websocket-Key") != "" ||
		strings.EqualFold(r.Header.Get("X-Requested-With"), "XMLHttpRequest") {
		return false
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), "text/html")
}

// isPrefetch reports whether a browser prefetches a page. It drops the refusal and asks again on a
// real navigation, whereas a flow would take up one of maxFlows.
func isPrefetch(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose")), "prefetch")
}

// tokenSize is the number of random bytes of a token.
const tokenSize = 32

// randomToken returns tokenSize random bytes as text.
func randomToken() string {
	raw := make([]byte, tokenSize)
	_, _ = rand.Read(raw) // crypto/rand.Read never returns an error
	return base64.RawURLEncoding.EncodeToString(raw)
}

// newToken makes a token: its text for the browser, and its hash for the store.
func newToken() (text string, hash []byte) {
	text = randomToken()
	return text, hashToken(text)
}

// hashToken returns the hash of a token; nil for text that cannot be one.
func hashToken(text string) []byte {
	if len(text) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:]
}

// sessionTokenHash returns the hash of the browser's session token. It returns nil without one, and
// for two: another host may have set one of them.
func (q *request) sessionTokenHash() []byte {
	found := q.r.CookiesNamed(q.sessionCookieName())
	if len(found) != 1 {
		return nil
	}
	return hashToken(found[0].Value)
}

// scope digests account, URL, auth_id and provider: where a session is valid.
func (q *request) scope() string {
	parts := []string{q.action.AccountID, q.action.EndpointURL, q.action.AuthID, q.provider.Scope()}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
