// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// showLogoutForm writes a page with a button: a GET changes nothing.
func (q *request) showLogoutForm() error {
	q.writeLogoutPage(logoutPage{Title: "Log out", Text: "You are about to log out of " + q.action.EndpointURL + ".",
		Button: "Log out"})
	return nil
}

// handleLogout ends the browser's session, or those that a logout token names. Only refused tokens
// count against the rate limit: a provider may end many sessions at once from one address.
func (q *request) handleLogout() error {
	if q.limits[PathLogout].Wait(q.Conn.ClientIP, q.now()) > 0 {
		q.writeRateLimited()
		return nil
	}
	r := q.clientRequest(q.r.Context())
	r.Body = http.MaxBytesReader(q.w, r.Body, maxLogoutPost)
	if err := r.ParseForm(); err != nil {
		q.rejectLogoutToken(err)
		return nil
	}
	if r.PostForm.Has("logout_token") {
		return q.handleBackChannelLogout(r)
	}
	if !q.checkRateLimit(PathLogout) {
		return nil
	}
	if err := checkOrigin(q.r); err != nil {
		return RefusedError("Another site asked for this logout. Open "+q.action.URL(PathLogout)+" to log out.", err)
	}
	if hash := q.sessionTokenHash(); hash != nil {
		session, err := q.lookUpSession(hash)
		if err == nil && session != nil {
			_, err = q.opt.Revoker.Revoke(r.Context(),
				account.Caller{AccountID: q.action.AccountID, PrincipalID: session.UserID},
				account.RevokeSelector{SessionID: session.ID}, account.RevokedByLogout)
		}
		if err != nil && account.CodeOf(err) != account.CodeNotFound {
			return unavailable("logging out", err)
		}
	}
	q.setCookie(q.sessionCookieName(), "", 0)
	q.writeLogoutPage(logoutPage{Title: "Logged out", Text: "You are logged out of " + q.action.EndpointURL +
		". You may still be logged in with the identity provider.", Link: "Log in again", Path: "/"})
	return nil
}

// checkOrigin refuses a form of another origin. http.CrossOriginProtection compares hosts only, and
// a man in the middle can serve a page of this host over plain http, where logins never happen.
func checkOrigin(r *http.Request) error {
	if strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http:") {
		return errors.New("the form was sent from a page that was loaded over plain http")
	}
	return new(http.CrossOriginProtection).Check(r)
}

// handleBackChannelLogout ends the sessions that a logout token names (OpenID Connect Back-Channel
// Logout).
func (q *request) handleBackChannelLogout(r *http.Request) error {
	receiver, ok := q.provider.(LogoutVerifier)
	if !ok {
		q.rejectLogoutToken(errors.New("this login takes no logout token"))
		return nil
	}
	ctx, cancel := q.providerContext()
	defer cancel()
	t, err := receiver.VerifyLogout(ctx, r)
	switch {
	case account.CodeOf(err) == account.CodeProviderFailed: // its keys are not available
		return err
	case err != nil:
		q.rejectLogoutToken(err)
		return nil
	case t.Issuer == "" || t.ID == "" || t.Subject == "" && t.SessionID == "":
		q.rejectLogoutToken(errors.New("the token has no subject and no session"))
		return nil
	}
	by := account.Caller{AccountID: q.action.AccountID, PrincipalID: t.Issuer}
	done, err := q.opt.Revoker.Revoke(ctx, by, account.RevokeSelector{
		Issuer: t.Issuer, Client: t.Client, ProviderSession: t.SessionID, Subject: t.Subject,
		ReplayKey:   strings.Join([]string{"logout_token", t.Issuer, t.Client, t.ID}, "\x00"),
		ReplayUntil: t.Expires.Add(ClockSkew),
	}, account.RevokedByBackChannel)
	switch {
	case account.CodeOf(err) == account.CodeLoginFailed:
		q.rejectLogoutToken(err)
		return nil
	case err != nil: // the provider may ask again
		return unavailable("ending the sessions of a logout token", err)
	}
	q.log.Info("the identity provider has ended sessions", "endpoint", q.Endpoint.ID, "auth_id", q.Config.AuthID,
		"issuer",
		t.Issuer, "sessions", len(done.SessionIDs))
	q.w.Header().Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// rejectLogoutToken answers an invalid logout token as the specification requires, and counts it
// against the rate limit.
func (q *request) rejectLogoutToken(cause error) {
	q.limits[PathLogout].Allow(q.Conn.ClientIP, q.now())
	q.log.Info("logout token refused", "endpoint", q.Endpoint.ID, "auth_id", q.Config.AuthID, "err",
		logText(cause))
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(http.StatusBadRequest)
	_, _ = q.w.Write([]byte(`{"error":"invalid_request"}` + "\n")) // the client may be gone
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

// writeFramedPage answers a frame within another page, in which no identity provider shows its login.
// The page may be framed: it has a link and nothing that a click could change.
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
