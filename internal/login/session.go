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

// admit lets the request go on when it has a session, and else asks for one.
func (v *visit) admit(next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult)) {
	hash := v.tokenHash()
	if hash == nil {
		v.stranger(next)
		return
	}
	guarded, under, cut := live.Abortable(v.w, v.r, v.Conn.Abort)
	entry := v.opt.Live.Register(cut) // before the session is read: a revocation in between is told by SetSession
	defer entry.Done()
	session, err := v.session(hash)
	switch {
	case err != nil:
		v.fail(err)
	case session == nil, !entry.SetSession(session.ID):
		entry.Done()
		v.stranger(next)
	case !v.authorized(session.Identity.Groups):
		v.page(account.CodeLoginFailed, "You are logged in, but this endpoint admits members of certain groups only. Open "+
			v.place.URL(PathLogout)+" to log out, and come back as somebody else.")
	default:
		found := trafficpolicy.LoginResult{Identity: session.Identity, Provider: session.Provider}
		found.Identity.ID = session.UserID
		next(guarded, onward(under, v.Config, &found), found)
	}
}

// session reads the session of the token; nil when there is none that is good for this place. It
// never answers from memory.
func (v *visit) session(hash []byte) (*account.LiveSession, error) {
	s, err := v.opt.Store.LiveSession(v.r.Context(), v.place.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, &account.Error{Code: account.CodeUnavailable, Msg: "reading a session", Cause: err}
	case s.Scope != v.bound():
		return nil, nil //nolint:nilnil // it is another place's
	}
	return s, nil
}

func (v *visit) authorized(groups []string) bool {
	of := v.Config.AuthorizedGroups
	return len(of) == 0 || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(of, g) })
}

// stranger answers a request without a session: a browser that goes to a page is sent to log in,
// everybody else is told to.
func (v *visit) stranger(next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult)) {
	switch {
	case v.Config.AllowCORSPreflight && isPreflight(v.r):
		next(v.w, onward(v.r, v.Config, nil), trafficpolicy.LoginResult{})
	case isNavigation(v.r):
		v.begin(returnPath(trafficpolicy.ClientRequestURI(v.r)), 0)
	case isForm(v.r): // a redirect would lose what was filled in
		v.page(account.CodeLoginNeeded, "You are not logged in, so what you sent was not passed on. Open "+
			v.place.URL(PathLogin)+" in another tab and log in; then reload this page, and your browser sends it again.")
	default:
		v.page(account.CodeLoginNeeded, "This endpoint asks for a login. Open "+v.place.EndpointURL+
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
	return r.Method == http.MethodGet && fromPage(r) && !isPrefetch(r)
}

// isForm says whether a browser goes to a page with what somebody has filled in.
func isForm(r *http.Request) bool { return r.Method == http.MethodPost && fromPage(r) }

// fromPage says whether a browser asks, on behalf of a person who is to see the answer.
func fromPage(r *http.Request) bool {
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

// tokenHash returns the hash of the browser's secret; nil without one, and when there are two:
// somebody else may have set one of them.
func (v *visit) tokenHash() []byte {
	found := v.r.CookiesNamed(v.sessionCookie())
	if len(found) != 1 {
		return nil
	}
	return hashToken(found[0].Value)
}

// bound is what a session made here is good for.
func (v *visit) bound() string {
	sum := sha256.Sum256(
		[]byte(strings.Join([]string{v.place.AccountID, v.place.EndpointURL, v.place.AuthID, v.provider.Scope()}, "\x00")))
	return hex.EncodeToString(sum[:])
}
