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
func (q *request) handleCallback() error {
	if !q.checkRateLimit(PathCallback) || !q.checkClock() {
		return nil
	}
	state := q.clientQuery().Get("state")
	f := q.consumeFlow(func(f *Flow) bool { return equalSecrets(f.State, state) })
	if f == nil {
		return q.staleResponse("a callback", q.statePath(state))
	}
	q.returnTo = f.ReturnTo
	ctx, cancel := q.providerContext()
	defer cancel()
	auth, err := q.provider.(CallbackProvider).HandleCallback(ctx, q.clientRequest(ctx), f, q.action)
	if err != nil {
		return err
	}
	return q.completeLogin(auth, f)
}

// finishTicket is what a POST to acs leaves for the GET that follows it: the POST comes from
// another site, without the browser's cookies.
type finishTicket struct {
	Authentication *Authentication `json:"confirmed"`
	Scope          string          `json:"bound"`
	ReturnTo       string          `json:"return_to"`
	ReceivedAt     time.Time       `json:"came"` // by the store's clock
}

// ticketLifetime is how long a browser may take from the POST to the GET.
const ticketLifetime = time.Minute

// handleACS handles the provider's response that the browser posts. handleFinish finds the flow
// that it belongs to.
func (q *request) handleACS() error {
	if !q.checkRateLimit(PathACS) || !q.checkClock() {
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
	if first, err := q.isFirstUse(r, auth); err != nil {
		return err
	} else if !first { // a page that was reloaded: only the GET has the browser's session, if there is one
		q.redirect(q.action.path(PathFinish))
		return nil
	}
	returnTo := "/"
	if auth.InResponseTo == "" {
		returnTo = returnPath(r.PostForm.Get("RelayState"))
	}
	now, err := q.opt.Store.Time(ctx)
	if err != nil {
		return unavailable("reading the store's clock", err)
	}
	data, err := json.Marshal(finishTicket{Authentication: auth, Scope: q.scope(), ReturnTo: returnTo, ReceivedAt: now})
	if err != nil {
		return fmt.Errorf("encoding a ticket: %w", err)
	}
	secret, hash := newToken()
	if err := q.opt.Store.SaveTicket(ctx, q.action.AccountID, hash, data, q.now().Add(ticketLifetime)); err != nil {
		return unavailable("saving a ticket", err)
	}
	q.redirect(q.action.path(PathFinish) + "?ticket=" + url.QueryEscape(secret))
	return nil
}

// isFirstUse reports whether the Once key of an authentication was not used before, on any server.
func (q *request) isFirstUse(r *http.Request, auth *Authentication) (bool, error) {
	if auth.Once == "" {
		return true, nil
	}
	first, err := q.opt.Store.UseOnce(r.Context(), q.action.AccountID, auth.Once, auth.OnceUntil)
	if err != nil {
		return false, unavailable("recording the use of an assertion", err)
	}
	if !first {
		q.log.Info("an assertion was used before", "endpoint", q.Endpoint.ID, "auth_id", q.Config.AuthID)
	}
	return first, nil
}

// handleFinish ends a login whose response was posted, in the browser that started it.
func (q *request) handleFinish() error {
	if !q.checkRateLimit(PathCallback) || !q.checkClock() {
		return nil
	}
	mode := q.r.Header.Get("Sec-Fetch-Mode")
	hash := hashToken(q.clientQuery().Get("ticket"))
	if hash == nil || mode != "" && mode != "navigate" {
		return q.staleResponse("an invalid ticket", "/")
	}
	data, err := q.opt.Store.RedeemTicket(q.r.Context(), q.action.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return q.staleResponse("an unknown ticket", "/")
	case err != nil:
		return unavailable("redeeming a ticket", err)
	}
	var t finishTicket
	if err := json.Unmarshal(data, &t); err != nil || t.Authentication == nil || t.Scope != q.scope() {
		return q.staleResponse("a ticket of another action", "/")
	}
	if t.Authentication.InResponseTo == "" {
		began := t.ReceivedAt
		if at := t.Authentication.AuthTime; !at.IsZero() && at.Before(began) {
			began = at
		}
		return q.completeLogin(t.Authentication, &Flow{ReturnTo: t.ReturnTo, StartedAt: began, StoreTime: began})
	}
	f := q.consumeFlow(func(f *Flow) bool { return equalSecrets(f.RequestID, t.Authentication.InResponseTo) })
	if f == nil {
		return q.staleResponse("an assertion", "/")
	}
	return q.completeLogin(t.Authentication, f)
}

// completeLogin stores the session of an authentication, always a new one, ends the session that
// the browser had here, and redirects the browser to the flow's return path.
func (q *request) completeLogin(auth *Authentication, f *Flow) error {
	q.person = auth.Identity
	if err := q.checkAuthTime(auth, f); err != nil {
		return err
	}
	token, hash := newToken()
	session, err := q.opt.Store.Login(q.r.Context(), q.action.AccountID, account.NewLogin{
		Key: auth.Key, Provider: auth.Provider, Identity: auth.Identity, Issuer: auth.Issuer, Client: auth.Client,
		Subject: auth.Subject, SessionID: auth.SessionID, AuthTime: auth.AuthTime, NotAfter: auth.NotAfter,
		StartedAt: f.StoreTime, ForceReauth: f.ForceReauth,
		EndpointID: q.Endpoint.ID, URL: q.action.EndpointURL, Scope: q.scope(),
		TokenHash: hash, Replaces: q.sessionTokenHash(), Device: q.device(),
		MaxDuration: q.Config.MaxSession, Idle: q.Config.IdleSession,
	})
	switch {
	case account.CodeOf(err) == account.CodeLoginAgain && f.Restarts < maxRestarts:
		q.log.Info("login restarted: sessions of the person were revoked", "endpoint", q.Endpoint.ID, "auth_id",
			q.Config.AuthID)
		return q.startFlow(f.ReturnTo, f.Restarts+1)
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
		"user", session.UserID, "session", session.ID)
	if session.ReplacedSessionID != "" {
		q.opt.Live.Abort([]string{session.ReplacedSessionID})
	}
	q.setCookie(q.sessionCookieName(), token, q.Config.MaxSession)
	q.redirect(f.ReturnTo)
	return nil
}

// checkAuthTime refuses an authentication that is older than the flow when the provider had to ask
// the person again. That request travels through the person's browser, which may change it; the
// auth_time in the response cannot be changed. An auth_time in the future counts as none.
func (q *request) checkAuthTime(auth *Authentication, f *Flow) error {
	if ahead := auth.AuthTime.Sub(q.now()); ahead > ClockSkew {
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
func (q *request) serveMetadata() error {
	if !q.checkRateLimit(PathMetadata) {
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
