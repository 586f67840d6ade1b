// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// maxReturnPath is the length in bytes of the longest path that a flow's cookie keeps, so that
// browsers store the cookie. With a longer path, the login ends at /.
const maxReturnPath = 1800

// maxFlowCookie is the length in bytes of the longest cookie of a flow that is read.
const maxFlowCookie = 4096

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

// startFlow redirects the browser to the provider. After restarts of the login, the provider must
// ask the person again.
func (q *request) startFlow(returnTo string, restarts int) error {
	q.step = PathLogin
	if !q.checkRateLimit(PathLogin) || !q.checkClock() {
		return nil
	}
	ctx, cancel := q.providerContext()
	defer cancel()
	now, err := q.opt.Store.Time(ctx)
	if err != nil {
		return unavailable("reading the store's clock", err)
	}
	f := &Flow{State: randomToken() + q.stateSuffix(returnTo), Nonce: randomToken(), Verifier: randomToken(),
		ReturnTo: returnTo, StartedAt: q.now().UTC(), StoreTime: now, ForceReauth: restarts > 0, Restarts: restarts}
	start, err := q.provider.StartFlow(ctx, f, q.action)
	if err != nil {
		return err
	}
	f.RequestID = start.RequestID
	q.deleteOldFlows()
	q.setCookie(q.flowCookieName(f.State), q.sealFlow(f), flowLifetime)
	q.redirect(start.URL)
	return nil
}

// maxStatePath is the length in bytes of the longest return path that a state carries: providers
// limit the length of URLs.
const maxStatePath = 256

// stateSuffix returns the return path, encrypted, as the end of a flow's state: the callback has it
// when the browser no longer has the flow's cookie. SAML leaves no room for it.
func (q *request) stateSuffix(returnTo string) string {
	if _, ok := q.provider.(CallbackProvider); !ok || returnTo == "/" || len(returnTo) > maxStatePath {
		return ""
	}
	return "." + base64.RawURLEncoding.EncodeToString(q.opt.Key.Seal(returnTo, "return\x00"+q.scope()))
}

// statePath returns the return path that a state carries; "/" if there is none.
func (q *request) statePath(state string) string {
	_, suffix, _ := strings.Cut(state, ".")
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(suffix)
	if err != nil {
		return "/"
	}
	text, err := q.opt.Key.Unseal(sealed, "return\x00"+q.scope())
	if err != nil {
		return "/"
	}
	return returnPath(text)
}

// handleLogin starts a login at the person's own request.
func (q *request) handleLogin() error {
	if !isNavigation(q.r) {
		q.writePage(account.CodeLoginNeeded, "Open this address in a browser.")
		return nil
	}
	return q.startFlow(returnPath(q.clientQuery().Get("return_to")), 0)
}

// clientQuery returns the query as the client sent it.
func (q *request) clientQuery() url.Values {
	_, raw, _ := strings.Cut(trafficpolicy.ClientRequestURI(q.r), "?")
	values, _ := url.ParseQuery(raw) // an invalid query has no parameters
	return values
}

// flowOwner binds a flow to its action and provider: its cookie cannot be opened at another.
func (q *request) flowOwner() string { return "login\x00" + q.scope() }

func (q *request) sealFlow(f *Flow) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("login: encoding a flow: %v", err)) // strings and times always encode
	}
	return base64.RawURLEncoding.EncodeToString(q.opt.Key.Seal(string(text), q.flowOwner()))
}

// openFlow reads the value of a flow's cookie. It returns nil for one that is not ours, of another
// action, or expired.
func (q *request) openFlow(value string) *Flow {
	if len(value) > maxFlowCookie {
		return nil
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return nil
	}
	text, err := q.opt.Key.Unseal(sealed, q.flowOwner())
	if err != nil {
		return nil
	}
	var f Flow
	if json.Unmarshal([]byte(text), &f) != nil {
		return nil
	}
	if age := q.now().Sub(f.StartedAt); age > flowLifetime || age < -time.Minute {
		return nil
	}
	return &f
}

// storedFlow is a flow that the browser has a cookie of.
type storedFlow struct {
	cookieName string
	flow       *Flow // nil = unreadable
}

// readFlows returns the flows of this action that the browser has cookies of, the oldest first.
func (q *request) readFlows() []storedFlow {
	var all []storedFlow
	for _, c := range q.r.Cookies() {
		if strings.HasPrefix(c.Name, q.flowCookiePrefix()) && len(c.Name) == len(q.flowCookiePrefix())+stateNameLen {
			all = append(all, storedFlow{c.Name, q.openFlow(c.Value)})
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

// deleteOldFlows deletes unreadable flows, and the oldest ones until one more fits within maxFlows.
func (q *request) deleteOldFlows() {
	all := q.readFlows()
	for i, f := range all {
		if f.flow == nil || i <= len(all)-maxFlows {
			q.setCookie(f.cookieName, "", 0)
		}
	}
}

// consumeFlow returns the browser's flow that matches, and deletes its cookie. It returns nil when
// there is none.
func (q *request) consumeFlow(matches func(*Flow) bool) *Flow {
	for _, f := range q.readFlows() {
		if f.flow != nil && matches(f.flow) {
			q.setCookie(f.cookieName, "", 0)
			return f.flow
		}
	}
	return nil
}

func equalSecrets(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// staleResponse answers a provider's response that belongs to no flow of this browser: never started
// here, expired, or already finished, by this tab or another. It makes no session; a browser that
// has one goes on to returnTo, where the session is checked like any other.
func (q *request) staleResponse(what, returnTo string) error {
	q.returnTo = returnTo
	if hash := q.sessionTokenHash(); hash != nil && isNavigation(q.r) {
		session, err := q.lookUpSession(hash)
		if err != nil {
			return err
		}
		if session != nil {
			q.redirect(returnTo)
			return nil
		}
	}
	return RefusedError("This login was not begun in this browser, or it has ended. Open "+q.action.EndpointURL+
		" to begin again; your browser has to keep cookies for this site.",
		fmt.Errorf("%s without a login that was begun in this browser: it brought no cookie of one", what))
}

// clientRequest returns a copy of the request with the URL as the client sent it, and with ctx.
func (q *request) clientRequest(ctx context.Context) *http.Request {
	r := q.r.WithContext(ctx)
	if u, err := url.ParseRequestURI(trafficpolicy.ClientRequestURI(r)); err == nil {
		r.URL = u
	}
	return r
}
