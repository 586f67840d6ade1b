// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/hsts"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// request is one request to an endpoint with a login action, and the answer to it.
type request struct {
	trafficpolicy.LoginRequest
	w        http.ResponseWriter
	r        *http.Request
	action   Action
	provider Provider
	log      *slog.Logger
	failures FailureRecorder // failures may be nil.
	step     string          // step is the current one of the login; "" = stepSession.
	returnTo string          // returnTo is the path at which the login began; "" = unknown.
	// person is the one that the provider has confirmed, for reports of failures.
	person account.LoginIdentity
}

// scope returns a digest of account, URL, auth_id and provider: a session is valid there only.
func (q *request) scope() string {
	parts := []string{q.action.AccountID, q.Endpoint.URL, q.action.AuthID, q.provider.Scope()}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// clientQuery returns the query as the client sent it.
func (q *request) clientQuery() url.Values {
	_, raw, _ := strings.Cut(trafficpolicy.ClientRequestURI(q.r), "?")
	values, _ := url.ParseQuery(raw) // an invalid query has no parameters
	return values
}

// clientRequest returns a copy of the request with the URL as the client sent it, and with ctx.
func (q *request) clientRequest(ctx context.Context) *http.Request {
	r := q.r.WithContext(ctx)
	if u, err := url.ParseRequestURI(trafficpolicy.ClientRequestURI(r)); err == nil {
		r.URL = u
	}
	return r
}

// providerContext limits how long one step may wait for the provider.
func (q *request) providerContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(q.r.Context(), providerTimeout)
}

// setPrivacyHeaders keeps responses of a login out of caches, its URLs out of Referer, and later
// requests off plain http.
func (q *request) setPrivacyHeaders() {
	h := q.w.Header()
	if q.Conn.TLS {
		hsts.Set(h, q.r.Host)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
}

func (q *request) writePage(code account.Code, msg string) {
	q.setPrivacyHeaders()
	q.Pages.WritePage(q.w, q.r, code.Status(), code, msg)
}

func (q *request) writeRateLimited() {
	q.w.Header().Set("Retry-After", "1")
	q.writePage(account.CodeRateLimited,
		"There are too many logins from your network at the moment. Try again in a moment.")
}

func (q *request) redirect(to string) {
	q.setPrivacyHeaders()
	h := q.w.Header()
	h.Set("Location", to)
	h.Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusSeeOther)
}

// writeError answers a request whose login failed. Only the message of an *account.Error is shown
// to the person; the cause is logged.
func (q *request) writeError(err error) {
	code, msg := account.CodeOf(err), userMessage(err)
	switch code {
	case account.CodeLoginFailed, account.CodeProviderFailed, account.CodeLoginAgain, account.CodeUnavailable:
	default:
		code, msg = account.CodeUnavailable, ""
	}
	if msg == "" || code == account.CodeUnavailable {
		msg = "The service cannot look up at the moment who is logged in to this endpoint. Try again in a moment."
	} else if !strings.Contains(msg, q.action.EndpointURL) { // a provider's message has no URL
		msg += " Open " + q.action.EndpointURL + " to begin again."
	}
	level := slog.LevelInfo
	if code == account.CodeUnavailable {
		level = slog.LevelError
	}
	if q.r.Context().Err() == nil {
		q.log.Log(q.r.Context(), level, "login failed", "endpoint", q.Endpoint.ID, "url", q.Endpoint.URL, "auth_id",
			q.Config.AuthID, "err", logText(err))
	}
	q.reportFailure(code, msg, err)
	if code == account.CodeUnavailable {
		q.w.Header().Set("Retry-After", "2")
	}
	if q.returnTo != "/" && q.returnTo != "" { // the owner of the endpoint is not told
		msg = strings.ReplaceAll(msg, q.action.EndpointURL, q.action.EndpointURL+q.returnTo)
	}
	q.writePage(code, msg)
}

// sessionCookieName returns the name of the cookie of sessions. Browsers send the cookies of a host
// to all of its ports, so that the endpoint's port, but the usual one, is part of the name.
func (q *request) sessionCookieName() string {
	name := trafficpolicy.LoginCookiePrefix + q.action.AuthID
	if u, err := url.Parse(q.Endpoint.URL); err == nil && u.Port() != "" && u.Port() != "443" {
		name += "~" + u.Port()
	}
	return name
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

// stateNameLen is the number of characters of a flow's state in the name of its cookie.
const stateNameLen = 8

// flowCookieName returns the name of a flow's cookie; "" for an invalid state.
func (q *request) flowCookieName(state string) string {
	if len(state) <= stateNameLen || strings.Trim(state[:stateNameLen], base64URLAlphabet) != "" {
		return ""
	}
	return q.flowCookiePrefix() + state[:stateNameLen]
}

// flowCookiePrefix begins the names of the cookies of flows.
func (q *request) flowCookiePrefix() string { return q.sessionCookieName() + "-" }

// flowOwner binds a flow to its action and provider: its cookie cannot be opened at another.
func (q *request) flowOwner() string { return "login\x00" + q.scope() }

const base64URLAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// setCookie sets a cookie for this host only, Secure and HttpOnly. An empty value deletes it.
func (q *request) setCookie(name, value string, life time.Duration) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(life / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(q.w, c)
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

func equalSecrets(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// logoutPage is a page of the logout with a button, which posts to the same URL, or a link, which
// opens a new tab if NewTab is set.
type logoutPage struct {
	Title, Text, Button, Link, Path string
	NewTab                          bool
}

var logoutTemplate = template.Must(template.New("logout").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 40rem; margin: 15vh auto; padding: 0 1.5rem }
button { font: inherit; padding: .4rem 1rem }
</style>
<main>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{if .Button}}<form method="post"><button>{{.Button}}</button></form>{{end}}
{{if .Link}}<p><a href="{{.Path}}"{{if .NewTab}} target="_blank" rel="noopener"{{end}}>{{.Link}}</a></p>{{end}}
</main>
</html>
`))

// writeLogoutPage writes a logout page, which cannot be framed and runs no script.
func (q *request) writeLogoutPage(p logoutPage) { q.writeOwnPage(http.StatusOK, "'none'", p) }

// writeFramedPage answers a frame within another page, in which no identity provider shows its
// login. The page may be framed: it has a link and nothing that a click could change.
func (q *request) writeFramedPage() {
	path := returnPath(trafficpolicy.ClientRequestURI(q.r))
	q.w.Header().Set(account.CodeHeader, string(account.CodeLoginNeeded))
	q.writeOwnPage(account.CodeLoginNeeded.Status(), "*", logoutPage{Title: "Log in", Text: "This page asks for a " +
		"login, which cannot be shown inside another page. Open it in a new tab and log in there. If it stays " +
		"like this afterwards, your browser keeps logins from pages inside other sites.",
		Link: "Open " + q.action.EndpointURL + " in a new tab", Path: path, NewTab: true})
}

func (q *request) writeOwnPage(status int, framedBy string, p logoutPage) {
	q.setPrivacyHeaders()
	h := q.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "+
		"base-uri 'none'; frame-ancestors "+framedBy)
	h.Set("X-Content-Type-Options", "nosniff")
	q.w.WriteHeader(status)
	_ = logoutTemplate.Execute(q.w, p) // a fixed template over texts; the client may be gone
}
