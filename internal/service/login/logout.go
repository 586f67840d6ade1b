// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// logouts ends sessions: of the browser that asks for it, or those that a provider names. It is safe
// for concurrent use.
type logouts struct {
	revoker   account.Revoker
	sessions  *sessions
	admission *admission
}

// showForm writes a page with a button: a GET changes nothing.
func (l *logouts) showForm(q *request) error {
	q.writeLogoutPage(logoutPage{Title: "Log out", Text: "You are about to log out of " + q.action.EndpointURL + ".",
		Button: "Log out"})
	return nil
}

// handle ends the browser's session, or those that a logout token names. Only refused tokens
// count against the rate limit: a provider may end many sessions at once from one address.
func (l *logouts) handle(q *request) error {
	if l.admission.limits[PathLogout].Wait(q.Conn.ClientIP, time.Now()) > 0 {
		q.writeRateLimited()
		return nil
	}
	r := q.clientRequest(q.r.Context())
	r.Body = http.MaxBytesReader(q.w, r.Body, maxLogoutPost)
	if err := r.ParseForm(); err != nil {
		l.rejectToken(q, err)
		return nil
	}
	if r.PostForm.Has("logout_token") {
		return l.handleBackChannel(q, r)
	}
	if !l.admission.checkRateLimit(q, PathLogout) {
		return nil
	}
	if err := checkOrigin(q.r); err != nil {
		return RefusedError("Another site asked for this logout. Open "+q.action.URL(PathLogout)+" to log out.", err)
	}
	if hash := q.sessionTokenHash(); hash != nil {
		session, err := l.sessions.find(q, hash)
		if err == nil && session != nil {
			_, err = l.revoker.Revoke(r.Context(),
				account.Caller{AccountID: q.action.AccountID, PrincipalID: session.Identity.ID},
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

// handleBackChannel ends the sessions that a logout token names (OpenID Connect Back-Channel
// Logout).
func (l *logouts) handleBackChannel(q *request, r *http.Request) error {
	receiver, ok := q.provider.(LogoutVerifier)
	if !ok {
		l.rejectToken(q, errors.New("this login takes no logout token"))
		return nil
	}
	ctx, cancel := q.providerContext()
	defer cancel()
	t, err := receiver.VerifyLogout(ctx, r)
	switch {
	case account.CodeOf(err) == account.CodeProviderFailed: // its keys are not available
		return err
	case err != nil:
		l.rejectToken(q, err)
		return nil
	case t.Issuer == "" || t.ID == "" || t.Subject == "" && t.SessionID == "":
		l.rejectToken(q, errors.New("the token has no subject and no session"))
		return nil
	}
	by := account.Caller{AccountID: q.action.AccountID, PrincipalID: t.Issuer}
	done, err := l.revoker.Revoke(ctx, by, account.RevokeSelector{
		Issuer: t.Issuer, Client: t.Client, ProviderSession: t.SessionID, Subject: t.Subject,
		ReplayKey:   strings.Join([]string{"logout_token", t.Issuer, t.Client, t.ID}, "\x00"),
		ReplayUntil: t.Expires.Add(ClockSkew),
	}, account.RevokedByBackChannel)
	switch {
	case account.CodeOf(err) == account.CodeLoginFailed:
		l.rejectToken(q, err)
		return nil
	case err != nil: // the provider may ask again
		return unavailable("ending the sessions of a logout token", err)
	}
	q.log.Info("the identity provider has ended sessions", "endpoint", q.Endpoint.ID, "auth_id", q.Config.AuthID,
		"issuer", t.Issuer, "sessions", len(done.SessionIDs))
	q.w.Header().Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// rejectToken answers an invalid logout token as the specification requires, and counts it
// against the rate limit.
func (l *logouts) rejectToken(q *request, cause error) {
	l.admission.limits[PathLogout].Allow(q.Conn.ClientIP, time.Now())
	q.log.Info("logout token refused", "endpoint", q.Endpoint.ID, "auth_id", q.Config.AuthID, "err", logText(cause))
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(http.StatusBadRequest)
	_, _ = q.w.Write([]byte(`{"error":"invalid_request"}` + "\n")) // the client may be gone
}
