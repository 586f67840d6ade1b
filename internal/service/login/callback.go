// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// handleCallback handles the provider's response that the browser brings with GET.
func (l *logins) handleCallback(q *request) error {
	if !l.admission.checkRateLimit(q, PathCallback) || !l.admission.checkClock(q) {
		return nil
	}
	state := q.clientQuery().Get("state")
	f := l.flows.consume(q, func(f *Flow) bool { return equalSecrets(f.State, state) })
	if f == nil {
		return l.refuseStale(q, "a callback", l.flows.returnPath(q, state))
	}
	q.returnTo = f.ReturnTo
	ctx, cancel := q.providerContext()
	defer cancel()
	auth, err := q.provider.(CallbackProvider).HandleCallback(ctx, q.clientRequest(ctx), f, q.action)
	if err != nil {
		return err
	}
	return l.complete(q, auth, f)
}

// refuseStale answers a provider's response that belongs to no flow of this browser: never started
// here, expired, or already finished, by this tab or another. It makes no session; a browser that
// has one goes on to returnTo, which checks the session.
func (l *logins) refuseStale(q *request, what, returnTo string) error {
	q.returnTo = returnTo
	if hash := q.sessionTokenHash(); hash != nil && isNavigation(q.r) {
		session, err := l.sessions.find(q, hash)
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

// finishTicket is what a POST to acs leaves for the GET that follows it: the POST comes from
// another site, without the browser's cookies.
type finishTicket struct {
	Authentication *Authentication `json:"confirmed"`
	Scope          string          `json:"bound"`
	ReturnTo       string          `json:"return_to"`
	ReceivedAt     time.Time       `json:"came"` // ReceivedAt is a time of the store's clock.
}

// ticketLifetime is the longest time between the POST and the GET of a browser.
const ticketLifetime = time.Minute

// handleACS handles the provider's response that the browser posts. handleFinish finds the flow
// that it belongs to.
func (l *logins) handleACS(q *request) error {
	if !l.admission.checkRateLimit(q, PathACS) || !l.admission.checkClock(q) {
		return nil
	}
	ctx, cancel := q.providerContext()
	defer cancel()
	r := q.clientRequest(ctx)
	r.Body = http.MaxBytesReader(q.w, r.Body, maxPost)
	auth, err := q.provider.(PostProvider).ConsumeResponse(ctx, r, q.action)
	if err != nil {
		return err
	}
	if auth.InResponseTo == "" && !q.Config.AllowIdPInitiated {
		return RefusedError("This login began at the identity provider; this endpoint admits only those that begin "+
			"here. Open "+q.action.EndpointURL+".", nil)
	}
	if first, err := l.isFirstUse(q, r, auth); err != nil {
		return err
	} else if !first { // a page that was reloaded: only the GET has the browser's session, if there is one
		q.redirect(q.action.path(PathFinish))
		return nil
	}
	returnTo := "/"
	if auth.InResponseTo == "" {
		returnTo = returnPath(r.PostForm.Get("RelayState"))
	}
	now, err := l.store.Time(ctx)
	if err != nil {
		return unavailable("reading the store's clock", err)
	}
	data, err := json.Marshal(finishTicket{Authentication: auth, Scope: q.scope(), ReturnTo: returnTo, ReceivedAt: now})
	if err != nil {
		return fmt.Errorf("encoding a ticket: %w", err)
	}
	secret, hash := newToken()
	if err := l.store.SaveTicket(ctx, q.action.AccountID, hash, data, time.Now().Add(ticketLifetime)); err != nil {
		return unavailable("saving a ticket", err)
	}
	q.redirect(q.action.path(PathFinish) + "?ticket=" + url.QueryEscape(secret))
	return nil
}

// isFirstUse reports whether the Once key of an authentication was not used before, on any server.
func (l *logins) isFirstUse(q *request, r *http.Request, auth *Authentication) (bool, error) {
	if auth.Once == "" {
		return true, nil
	}
	first, err := l.store.UseOnce(r.Context(), q.action.AccountID, auth.Once, auth.OnceUntil)
	if err != nil {
		return false, unavailable("recording the use of an assertion", err)
	}
	if !first {
		q.log.Info("an assertion was used before", "endpoint", q.Endpoint.ID, "auth_id", q.Config.AuthID)
	}
	return first, nil
}

// handleFinish ends a login whose response was posted, in the browser that started it.
func (l *logins) handleFinish(q *request) error {
	if !l.admission.checkRateLimit(q, PathCallback) || !l.admission.checkClock(q) {
		return nil
	}
	mode := q.r.Header.Get("Sec-Fetch-Mode")
	hash := hashToken(q.clientQuery().Get("ticket"))
	if hash == nil || mode != "" && mode != "navigate" {
		return l.refuseStale(q, "an invalid ticket", "/")
	}
	data, err := l.store.RedeemTicket(q.r.Context(), q.action.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return l.refuseStale(q, "an unknown ticket", "/")
	case err != nil:
		return unavailable("redeeming a ticket", err)
	}
	var t finishTicket
	if err := json.Unmarshal(data, &t); err != nil || t.Authentication == nil || t.Scope != q.scope() {
		return l.refuseStale(q, "a ticket of another action", "/")
	}
	if t.Authentication.InResponseTo == "" {
		began := t.ReceivedAt
		if at := t.Authentication.AuthTime; !at.IsZero() && at.Before(began) {
			began = at
		}
		return l.complete(q, t.Authentication, &Flow{ReturnTo: t.ReturnTo, StartedAt: began, StoreTime: began})
	}
	f := l.flows.consume(q, func(f *Flow) bool { return equalSecrets(f.RequestID, t.Authentication.InResponseTo) })
	if f == nil {
		return l.refuseStale(q, "an assertion", "/")
	}
	return l.complete(q, t.Authentication, f)
}

// complete stores the session of an authentication, always a new one, ends the session that
// the browser had here, and redirects the browser to the flow's return path.
func (l *logins) complete(q *request, auth *Authentication, f *Flow) error {
	q.person = auth.Identity
	if err := checkAuthTime(auth, f); err != nil {
		return err
	}
	token, hash := newToken()
	session, err := l.store.Login(q.r.Context(), q.action.AccountID, account.NewLogin{
		Authentication: auth.Authentication, StartedAt: f.StoreTime, ForceReauth: f.ForceReauth,
		EndpointID: q.Endpoint.ID, URL: q.Endpoint.URL, Scope: q.scope(),
		TokenHash: hash, Replaces: q.sessionTokenHash(), Device: l.sessions.device(q),
		MaxDuration: q.Config.MaxSession, Idle: q.Config.IdleSession,
	})
	switch {
	case account.CodeOf(err) == account.CodeLoginAgain && f.Restarts < maxRestarts:
		q.log.Info("login restarted: sessions of the person were revoked", "endpoint", q.Endpoint.ID, "auth_id",
			q.Config.AuthID)
		return l.start(q, f.ReturnTo, f.Restarts+1)
	case account.CodeOf(err) == account.CodeLoginAgain:
		return &account.Error{Code: account.CodeLoginAgain,
			Msg: "Your sessions were ended, and the identity provider has not asked you for your password since. " +
				"Log out there, and open " + q.action.EndpointURL + " again.", Cause: err}
	case account.CodeOf(err) == account.CodeLoginFailed:
		return err
	case account.CodeOf(err) == account.CodeLimit:
		return RefusedError("No more people can log in here. Ask the owner of this endpoint to remove some.", err)
	case err != nil:
		return unavailable("saving a session", err)
	}
	q.log.Info("person logged in", "endpoint", q.Endpoint.ID, "url", q.Endpoint.URL, "auth_id", q.Config.AuthID,
		"user", session.Identity.ID, "session", session.ID)
	if session.ReplacedSessionID != "" {
		l.live.Abort([]string{session.ReplacedSessionID})
	}
	q.setCookie(q.sessionCookieName(), token, q.Config.MaxSession)
	q.redirect(f.ReturnTo)
	return nil
}

// checkAuthTime refuses an authentication that is older than the flow when the provider had to ask
// the person again. That request travels through the person's browser, which may change it; the
// auth_time in the response cannot be changed. An auth_time in the future counts as none.
func checkAuthTime(auth *Authentication, f *Flow) error {
	if ahead := time.Until(auth.AuthTime); ahead > ClockSkew {
		auth.AuthTime = time.Time{}
	}
	const sentence = "The identity provider was told to ask you for your password again, and "
	switch {
	case !f.ForceReauth:
	case auth.AuthTime.IsZero() && auth.AuthTimeRequired:
		return RefusedError(sentence+"does not say that it has.",
			errors.New("the ID token has no auth_time, or one in the future, although max_age was requested; "+
				"for a provider without auth_time set require_auth_time: false"))
	case !auth.AuthTime.IsZero() && auth.AuthTime.Before(f.StartedAt.Add(-ClockSkew)):
		return RefusedError(sentence+"has not done so.",
			fmt.Errorf("auth_time %s is before the login began, %s", auth.AuthTime.UTC(), f.StartedAt))
	}
	return nil
}

// serveMetadata writes the action's own SAML metadata.
func (l *logins) serveMetadata(q *request) error {
	if !l.admission.checkRateLimit(q, PathMetadata) {
		return nil
	}
	ctx, cancel := q.providerContext()
	defer cancel()
	text, err := q.provider.(PostProvider).Metadata(ctx, q.action)
	if err != nil {
		return err
	}
	h := q.w.Header()
	h.Set("Content-Type", "application/samlmetadata+xml")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = q.w.Write(text) // the client may be gone
	return nil
}

func unavailable(doing string, err error) error {
	return &account.Error{Code: account.CodeUnavailable, Msg: doing, Cause: err}
}
