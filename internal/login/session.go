// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// authenticate lets the request go on when it has a session, and else asks for one.
func (q *request) authenticate(next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult)) {
	hash := q.sessionTokenHash()
	if hash == nil {
		q.unauthenticated(next)
		return
	}
	guarded, under, cut := live.Abortable(q.w, q.r, q.Conn.Abort)
	entry := q.opt.Live.Register(cut) // before the session is read: a revocation in between is told by SetSession
	defer entry.Done()
	session, err := q.lookUpSession(hash)
	switch {
	case err != nil:
		q.writeError(err)
	case session == nil, !entry.SetSession(session.ID):
		entry.Done()
		q.unauthenticated(next)
	case !q.inAuthorizedGroup(session.Identity.Groups):
		q.writePage(account.CodeLoginFailed, "You are logged in, but this endpoint admits members of certain groups only. Open "+
			q.action.URL(PathLogout)+" to log out, and come back as somebody else.")
	default:
		result := trafficpolicy.LoginResult{Identity: session.Identity, Provider: session.Provider}
		result.Identity.ID = session.UserID
		next(guarded, upstreamRequest(under, q.Config, &result), result)
	}
}

// lookUpSession reads the session of the token; nil when there is none that is good for this place. It
// never answers from memory.
func (q *request) lookUpSession(hash []byte) (*account.LiveSession, error) {
	s, err := q.opt.Store.LiveSession(q.r.Context(), q.action.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, &account.Error{Code: account.CodeUnavailable, Msg: "reading a session", Cause: err}
	case s.Scope != q.scope():
		return nil, nil //nolint:nilnil // it is another place's
	}
	return s, nil
}

func (q *request) inAuthorizedGroup(groups []string) bool {
	allowed := q.Config.AuthorizedGroups
	return len(allowed) == 0 || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(allowed, g) })
}

// unauthenticated answers a request without a session: a browser that goes to a page is sent to log in,
// everybody else is told to.
func (q *request) unauthenticated(next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult)) {
	switch {
	case q.Config.AllowCORSPreflight && isPreflight(q.r):
		next(q.w, upstreamRequest(q.r, q.Config, nil), trafficpolicy.LoginResult{})
	case isNavigation(q.r):
		q.startFlow(returnPath(trafficpolicy.ClientRequestURI(q.r)), 0)
	case isFormPost(q.r): // a redirect would lose what was filled in
		q.writePage(account.CodeLoginNeeded, "You are not logged in, so what you sent was not passed on. Open "+
			q.action.URL(PathLogin)+" in another tab and log in; then reload this page, and your browser sends it again.")
	default:
		q.writePage(account.CodeLoginNeeded, "This endpoint asks for a login. Open "+q.action.EndpointURL+
			" in a browser and log in.")
	}
}

// isPreflight says whether a browser asks what a script may send.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Upgrade") == "" && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "" && r.ContentLength == 0
}

// isNavigation says whether a browser goes to a page, rather than a script or a program asking for
// something.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && acceptsPage(r) && !isPrefetch(r)
}

// isFormPost says whether a browser goes to a page with what somebody has filled in.
func isFormPost(r *http.Request) bool { return r.Method == http.MethodPost && acceptsPage(r) }

// acceptsPage says whether a browser asks, on behalf of a person who is to see the answer.
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

// isPrefetch says whether a browser loads ahead what nobody has asked for yet. It drops the
// refusal, and asks again when somebody does; a login would use up one of the few that can be under
// way.
func isPrefetch(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose")), "prefetch")
}

// tokenSize is the number of random bytes of a session's secret.
const tokenSize = 32

// newToken makes a secret: what the browser gets, and its hash.
func newToken() (text string, hash []byte) {
	raw := make([]byte, tokenSize)
	_, _ = rand.Read(raw) // crypto/rand.Read never returns an error
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(raw), sum[:]
}

// hashToken returns the hash of what a browser says is a secret; nil for what cannot be one.
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

// sessionTokenHash returns the hash of the browser's secret; nil without one, and when there are two:
// somebody else may have set one of them.
func (q *request) sessionTokenHash() []byte {
	found := q.r.CookiesNamed(q.sessionCookieName())
	if len(found) != 1 {
		return nil
	}
	return hashToken(found[0].Value)
}

// scope is what a session made here is good for.
func (q *request) scope() string {
	sum := sha256.Sum256(
		[]byte(strings.Join([]string{q.action.AccountID, q.action.EndpointURL, q.action.AuthID, q.provider.Scope()}, "\x00")))
	return hex.EncodeToString(sum[:])
}
