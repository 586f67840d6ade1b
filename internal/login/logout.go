// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// askLogout shows the button: a GET changes nothing.
func (v *visit) askLogout() {
	v.html(logoutPage{Title: "Log out", Text: "You are about to log out of " + v.place.EndpointURL + ".",
		Button: "Log out"})
}

// logout ends the browser's session, or those that a provider's token names. A provider may end any
// number of sessions at once from one address: only tokens that do not count are limited.
func (v *visit) logout() {
	if v.limits[PathLogout].Wait(v.Conn.ClientIP, v.now()) > 0 {
		v.tooMany()
		return
	}
	r := v.request(v.r)
	r.Body = http.MaxBytesReader(v.w, r.Body, maxLogoutPost)
	if err := r.ParseForm(); err != nil {
		v.refuseToken(err)
		return
	}
	if r.PostForm.Has("logout_token") {
		v.backChannel(r)
		return
	}
	if !v.admitted(PathLogout) {
		return
	}
	if err := ownOrigin(v.r); err != nil {
		v.fail(RefusedError("Another site asked for this logout. Open "+v.place.URL(PathLogout)+" to log out.", err))
		return
	}
	if hash := v.tokenHash(); hash != nil {
		session, err := v.session(hash)
		if err == nil && session != nil {
			_, err = v.opt.Revoker.Revoke(r.Context(), account.Caller{AccountID: v.place.AccountID, PrincipalID: session.UserID},
				account.RevokeSelector{SessionID: session.ID}, account.RevokedByLogout)
		}
		if err != nil && account.CodeOf(err) != account.CodeNotFound {
			v.fail(unavailable("logging out", err))
			return
		}
	}
	v.setCookie(v.sessionCookie(), "", 0)
	v.html(logoutPage{Title: "Logged out", Text: "You are logged out of " + v.place.EndpointURL +
		". You may still be logged in with the identity provider.", Link: "Log in again"})
}

// ownOrigin refuses a form of another origin. http.CrossOriginProtection compares hosts only, and
// anybody on the way can write a page of this host over plain http, where no login ever is.
func ownOrigin(r *http.Request) error {
	if strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http:") {
		return errors.New("the form was sent from a page that was loaded over plain http")
	}
	return new(http.CrossOriginProtection).Check(r)
}

// backChannel ends the sessions that a provider says have ended (OpenID Connect Back-Channel
// Logout).
func (v *visit) backChannel(r *http.Request) {
	receiver, ok := v.provider.(LogoutVerifier)
	if !ok {
		v.refuseToken(errors.New("this login takes no logout token"))
		return
	}
	ctx, cancel := v.asking()
	defer cancel()
	t, err := receiver.VerifyLogout(ctx, r)
	switch {
	case account.CodeOf(err) == account.CodeProviderFailed: // its keys cannot be had
		v.fail(err)
		return
	case err != nil:
		v.refuseToken(err)
		return
	case t.Issuer == "" || t.ID == "" || t.Subject == "" && t.SessionID == "":
		v.refuseToken(errors.New("the token names nobody"))
		return
	}
	by := account.Caller{AccountID: v.place.AccountID, PrincipalID: t.Issuer}
	done, err := v.opt.Revoker.Revoke(ctx, by, account.RevokeSelector{
		Issuer: t.Issuer, Client: t.Client, ProviderSession: t.SessionID, Subject: t.Subject,
		ReplayKey:   strings.Join([]string{"logout_token", t.Issuer, t.Client, t.ID}, "\x00"),
		ReplayUntil: t.Expires.Add(ClockSkew),
	}, account.RevokedByBackChannel)
	switch {
	case account.CodeOf(err) == account.CodeLoginFailed:
		v.refuseToken(err)
		return
	case err != nil: // the provider may ask again
		v.fail(unavailable("ending the sessions of a logout token", err))
		return
	}
	v.log.Info("the identity provider has ended sessions", "endpoint", v.Endpoint.ID, "auth_id", v.Config.AuthID, "issuer",
		t.Issuer, "sessions", len(done.SessionIDs))
	v.w.Header().Set("Content-Length", "0")
	v.w.WriteHeader(http.StatusOK)
}

// refuseToken answers a logout token that does not count, as the specification wants it, and counts
// it.
func (v *visit) refuseToken(cause error) {
	v.limits[PathLogout].Allow(v.Conn.ClientIP, v.now())
	v.log.Info("a logout token does not count", "endpoint", v.Endpoint.ID, "auth_id", v.Config.AuthID, "err",
		causeText(cause))
	v.w.Header().Set("Content-Type", "application/json")
	v.w.WriteHeader(http.StatusBadRequest)
	_, _ = v.w.Write([]byte(`{"error":"invalid_request"}` + "\n")) // the client may be gone
}

// logoutPage is a page of the logout: with a button, which posts to the same address, or with a
// link.
type logoutPage struct{ Title, Text, Button, Link string }

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
{{if .Link}}<p><a href="/">{{.Link}}</a></p>{{end}}
</main>
</html>
`))

// html shows a page of the logout. Nothing may frame it, and it runs nothing.
func (v *visit) html(p logoutPage) {
	v.noStore()
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	v.w.WriteHeader(http.StatusOK)
	_ = logoutTemplate.Execute(v.w, p) // a fixed template over texts; the client may be gone
}
