// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// flows stores the logins under way in cookies of the browser, encrypted. It is safe for concurrent
// use.
type flows struct{ key *seal.Key }

// save sets the cookie of a new flow, after those of old ones were deleted.
func (s flows) save(q *request, f *Flow) {
	s.deleteOld(q)
	text, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("login: encoding a flow: %v", err)) // strings and times always encode
	}
	q.setCookie(q.flowCookieName(f.State), s.seal(string(text), q.flowOwner()), flowLifetime)
}

func (s flows) seal(text, owner string) string {
	return base64.RawURLEncoding.EncodeToString(s.key.Seal(text, owner))
}

// unseal returns a sealed text; "" for one of another owner, and one that is not ours.
func (s flows) unseal(value, owner string) string {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return ""
	}
	text, err := s.key.Unseal(sealed, owner)
	if err != nil {
		return ""
	}
	return text
}

// maxFlowCookie is the length in bytes of the longest cookie of a flow that is read.
const maxFlowCookie = 4096

// open reads the value of a flow's cookie. It returns nil for one that is not ours, of another
// action, or expired.
func (s flows) open(q *request, value string) *Flow {
	var f Flow
	if len(value) > maxFlowCookie || json.Unmarshal([]byte(s.unseal(value, q.flowOwner())), &f) != nil {
		return nil
	}
	if age := time.Since(f.StartedAt); age > flowLifetime || age < -time.Minute {
		return nil
	}
	return &f
}

// storedFlow is a flow that the browser has a cookie of.
type storedFlow struct {
	cookieName string
	flow       *Flow // flow is nil if the cookie cannot be read.
}

// read returns the flows of this action that the browser has cookies of, the oldest first.
func (s flows) read(q *request) []storedFlow {
	var all []storedFlow
	for _, c := range q.r.Cookies() {
		if strings.HasPrefix(c.Name, q.flowCookiePrefix()) && len(c.Name) == len(q.flowCookiePrefix())+stateNameLen {
			all = append(all, storedFlow{c.Name, s.open(q, c.Value)})
		}
	}
	slices.SortStableFunc(all, func(a, b storedFlow) int { return a.startedAt().Compare(b.startedAt()) })
	return all
}

// startedAt returns when the flow began; zero for an unreadable one.
func (f *storedFlow) startedAt() time.Time {
	if f.flow == nil {
		return time.Time{}
	}
	return f.flow.StartedAt
}

// deleteOld deletes unreadable flows, and the oldest ones until one more fits within maxFlows.
func (s flows) deleteOld(q *request) {
	all := s.read(q)
	for i, f := range all {
		if f.flow == nil || i <= len(all)-maxFlows {
			q.setCookie(f.cookieName, "", 0)
		}
	}
}

// consume returns the browser's flow that matches, and deletes its cookie. It returns nil when
// there is none.
func (s flows) consume(q *request, matches func(*Flow) bool) *Flow {
	for _, f := range s.read(q) {
		if f.flow != nil && matches(f.flow) {
			q.setCookie(f.cookieName, "", 0)
			return f.flow
		}
	}
	return nil
}

// maxStatePath is the length in bytes of the longest return path that a state carries: providers
// limit the length of URLs.
const maxStatePath = 256

// stateSuffix returns the return path, encrypted, as the end of a flow's state: the callback has it
// when the browser no longer has the flow's cookie. SAML leaves no room for it.
func (s flows) stateSuffix(q *request, returnTo string) string {
	if _, ok := q.provider.(CallbackProvider); !ok || returnTo == "/" || len(returnTo) > maxStatePath {
		return ""
	}
	return "." + s.seal(returnTo, "return\x00"+q.scope())
}

// returnPath returns the return path that a state carries; "/" if there is none.
func (s flows) returnPath(q *request, state string) string {
	_, suffix, _ := strings.Cut(state, ".")
	return returnPath(s.unseal(suffix, "return\x00"+q.scope()))
}

// logins serves the steps of a login at the provider of an action: it starts flows, and makes the
// sessions of the people that the provider confirms. It is safe for concurrent use.
type logins struct {
	store     account.Logins
	live      *live.Registry
	sessions  *sessions
	flows     flows
	admission *admission
}

// unauthenticated answers a request without a session. A CORS preflight passes if the config allows
// it, a navigation is redirected to the provider, and any other request gets CodeLoginNeeded.
func (l *logins) unauthenticated(q *request, next trafficpolicy.AdmitFunc) {
	switch {
	case q.Config.AllowCORSPreflight && isPreflight(q.r):
		next(q.w, upstreamRequest(q.r, q.Config, nil), nil)
	case isFramed(q.r):
		q.writeFramedPage()
	case isNavigation(q.r):
		if err := l.start(q, returnPath(trafficpolicy.ClientRequestURI(q.r)), 0); err != nil {
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

// handleLogin starts a login at the person's own request.
func (l *logins) handleLogin(q *request) error {
	if !isNavigation(q.r) {
		q.writePage(account.CodeLoginNeeded, "Open this address in a browser.")
		return nil
	}
	return l.start(q, returnPath(q.clientQuery().Get("return_to")), 0)
}

// start redirects the browser to the provider. After restarts of the login, the provider must
// ask the person again.
func (l *logins) start(q *request, returnTo string, restarts int) error {
	q.step = PathLogin
	if !l.admission.checkRateLimit(q, PathLogin) || !l.admission.checkClock(q) {
		return nil
	}
	ctx, cancel := q.providerContext()
	defer cancel()
	now, err := l.store.Time(ctx)
	if err != nil {
		return unavailable("reading the store's clock", err)
	}
	f := &Flow{State: randomToken() + l.flows.stateSuffix(q, returnTo), Nonce: randomToken(), Verifier: randomToken(),
		ReturnTo: returnTo, StartedAt: time.Now().UTC(), StoreTime: now, ForceReauth: restarts > 0, Restarts: restarts}
	start, err := q.provider.StartFlow(ctx, f, q.action)
	if err != nil {
		return err
	}
	f.RequestID = start.RequestID
	l.flows.save(q, f)
	q.redirect(start.URL)
	return nil
}

// maxReturnPath is the length in bytes of the longest path that a flow's cookie has, so that
// browsers store the cookie. With a longer path, the login ends at /.
const maxReturnPath = 1800

// returnPath returns the path and query at which a login ends: the given ones when they are of this
// host and not a reserved path, else "/".
func returnPath(given string) string {
	switch {
	case len(given) > maxReturnPath, !strings.HasPrefix(given, "/"), strings.HasPrefix(given, "//"),
		strings.HasPrefix(given, `/\`):
		return "/"
	// browsers drop some of these characters before they parse a URL
	case strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "/"
	}
	u, err := url.ParseRequestURI(given)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || isReserved(u.Path) {
		return "/"
	}
	target, _, _ := strings.Cut(given, "#") // a browser adds the fragment that it had
	return target
}

// isReserved reports whether a browser may turn a decoded path into a reserved one: it reads a
// backslash as a slash, and removes dot segments, percent-encoded ones included.
func isReserved(decoded string) bool {
	resolved := (&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: strings.ReplaceAll(decoded, `\`, "/")}).Path
	return strings.HasPrefix("/"+strings.TrimLeft(resolved, "/"), strings.TrimSuffix(account.ReservedPath, "/"))
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
