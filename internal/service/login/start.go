// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// logins takes people through a login at the provider of an action: it starts flows, and makes the
// sessions of those that the provider confirms. It is safe for concurrent use.
type logins struct {
	store     account.Logins
	live      *live.Registry
	sessions  *sessions
	flows     flows
	admission *admission
}

// unauthenticated answers a request without a session. A CORS preflight passes if the config allows
// it, a navigation is redirected to the provider, and any other request gets CodeLoginNeeded.
func (l *logins) unauthenticated(
	q *request, next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult),
) {
	switch {
	case q.Config.AllowCORSPreflight && isPreflight(q.r):
		next(q.w, upstreamRequest(q.r, q.Config, nil), trafficpolicy.LoginResult{})
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

// maxReturnPath is the length in bytes of the longest path that a flow's cookie keeps, so that
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
	target, _, _ := strings.Cut(given, "#") // a browser keeps its own fragment
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
