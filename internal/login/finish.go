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

// callback takes the provider's answer that the browser brings with GET.
func (v *visit) callback() {
	if !v.admitted(PathCallback) {
		return
	}
	state := v.query().Get("state")
	f := v.takeFlow(func(f *Flow) bool { return same(f.State, state) })
	if f == nil {
		v.notBegun("a callback")
		return
	}
	ctx, cancel := v.asking()
	defer cancel()
	c, err := v.provider.(CallbackProvider).HandleCallback(ctx, v.request(v.r), f, v.place)
	if err != nil {
		v.fail(err)
		return
	}
	v.complete(c, f)
}

// ticket is what a post to acs leaves for the GET that follows it: the post comes from another
// site, without the browser's cookies.
type ticket struct {
	Confirmed *Authentication `json:"confirmed"`
	Bound     string          `json:"bound"`
	ReturnTo  string          `json:"return_to"`
	Came      time.Time       `json:"came"`
}

// ticketLife is how long a browser may take from the post to the GET.
const ticketLife = time.Minute

// consume takes the provider's answer that the browser posts. Whose login it is turns out in
// finish.
func (v *visit) consume() {
	if !v.admitted(PathACS) {
		return
	}
	ctx, cancel := v.asking()
	defer cancel()
	r := v.request(v.r).WithContext(ctx)
	r.Body = http.MaxBytesReader(v.w, r.Body, maxPost)
	c, err := v.provider.(PostProvider).ConsumeResponse(ctx, r, v.place)
	if err != nil {
		v.fail(err)
		return
	}
	if c.InResponseTo == "" && !v.Config.AllowIdPInitiated {
		v.fail(
			RefusedError("This login began at the identity provider; this endpoint admits only those that begin here. Open "+
				v.place.EndpointURL+".", nil))
		return
	}
	if err := v.once(r, c); err != nil {
		v.fail(err)
		return
	}
	returnTo := "/"
	if c.InResponseTo == "" {
		returnTo = returnPath(r.PostForm.Get("RelayState"))
	}
	data, err := json.Marshal(ticket{Confirmed: c, Bound: v.bound(), ReturnTo: returnTo, Came: v.now().UTC()})
	if err != nil {
		v.fail(fmt.Errorf("encoding a ticket: %w", err))
		return
	}
	secret, hash := newToken()
	if err := v.opt.Store.SaveTicket(ctx, v.place.AccountID, hash, data, v.now().Add(ticketLife)); err != nil {
		v.fail(unavailable("keeping a ticket", err))
		return
	}
	v.redirect(v.place.path(PathFinish) + "?ticket=" + url.QueryEscape(secret))
}

// once makes sure that the provider's word is used once, whichever server it comes to.
func (v *visit) once(r *http.Request, c *Authentication) error {
	if c.Once == "" {
		return nil
	}
	first, err := v.opt.Store.UseOnce(r.Context(), v.place.AccountID, c.Once, c.OnceUntil)
	if err != nil {
		return unavailable("noting that a login was used", err)
	}
	if !first {
		return RefusedError("This login was used before. Open "+v.place.EndpointURL+" again.",
			errors.New("an assertion came a second time"))
	}
	return nil
}

// finish ends a login whose answer was posted, in the browser that has begun it.
func (v *visit) finish() {
	if !v.admitted(PathCallback) {
		return
	}
	mode := v.r.Header.Get("Sec-Fetch-Mode")
	hash := hashToken(v.query().Get("ticket"))
	if hash == nil || mode != "" && mode != "navigate" {
		v.notBegun("a ticket that is none")
		return
	}
	data, err := v.opt.Store.RedeemTicket(v.r.Context(), v.place.AccountID, hash)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		v.notBegun("an unknown ticket")
		return
	case err != nil:
		v.fail(unavailable("taking a ticket", err))
		return
	}
	var t ticket
	if err := json.Unmarshal(data, &t); err != nil || t.Confirmed == nil || t.Bound != v.bound() {
		v.notBegun("a ticket of another place")
		return
	}
	if t.Confirmed.InResponseTo == "" {
		began := t.Came
		if at := t.Confirmed.AuthTime; !at.IsZero() && at.Before(began) {
			began = at
		}
		v.complete(t.Confirmed, &Flow{ReturnTo: t.ReturnTo, StartedAt: began})
		return
	}
	f := v.takeFlow(func(f *Flow) bool { return same(f.RequestID, t.Confirmed.InResponseTo) })
	if f == nil {
		v.notBegun("an assertion")
		return
	}
	v.complete(t.Confirmed, f)
}

// complete makes the session of a confirmed login, always a new one, ends the one that the browser
// had here, and sends the browser where it wanted to go.
func (v *visit) complete(c *Authentication, f *Flow) {
	if err := v.checkAuthTime(c, f); err != nil {
		v.fail(err)
		return
	}
	token, hash := newToken()
	session, err := v.opt.Store.Login(v.r.Context(), v.place.AccountID, account.NewLogin{
		Key: c.Key, Provider: c.Provider, Identity: c.Identity, Issuer: c.Issuer, Client: c.Client, Subject: c.Subject,
		SessionID: c.SessionID, StartedAt: f.StartedAt, AuthTime: c.AuthTime, ForceReauth: f.ForceReauth,
		EndpointID: v.Endpoint.ID,
		URL:        v.place.EndpointURL, Scope: v.bound(), TokenHash: hash, Replaces: v.tokenHash(),
		Device: v.opt.Device(v.r, v.Conn.ClientIP), MaxDuration: v.Config.MaxSession, Idle: v.Config.IdleSession,
		NotAfter: c.NotAfter,
	})
	switch {
	case account.CodeOf(err) == account.CodeLoginAgain && f.Restarts < maxAgain:
		v.log.Info("a login is asked for again: sessions of the person were revoked", "endpoint", v.Endpoint.ID, "auth_id",
			v.Config.AuthID)
		v.begin(f.ReturnTo, f.Restarts+1)
		return
	case account.CodeOf(err) == account.CodeLoginAgain:
		v.fail(&account.Error{Code: account.CodeLoginAgain,
			Msg: "Your sessions were ended, and the identity provider has not asked you for your password since. Log out " +
				"there, and open " + v.place.EndpointURL + " again.", Cause: err})
		return
	case account.CodeOf(err) == account.CodeLoginFailed:
		v.fail(err)
		return
	case account.CodeOf(err) == account.CodeLimit:
		v.fail(RefusedError("No more people can log in here. Ask whoever runs this endpoint to remove some.", err))
		return
	case err != nil:
		v.fail(unavailable("keeping a session", err))
		return
	}
	v.log.Info("somebody has logged in", "endpoint", v.Endpoint.ID, "url", v.Endpoint.URL, "auth_id", v.Config.AuthID,
		"user", session.UserID, "session", session.ID)
	if session.ReplacedSessionID != "" {
		v.opt.Live.Abort([]string{session.ReplacedSessionID})
	}
	v.setCookie(v.sessionCookie(), token, v.Config.MaxSession)
	v.redirect(f.ReturnTo)
}

// checkAuthTime makes sure that the provider has asked the person since the login began, where it
// was told to. The person's browser carries that request, and may change it; what the provider says
// of the time it cannot. A time that is still to come says nothing, and is removed.
func (v *visit) checkAuthTime(c *Authentication, f *Flow) error {
	if ahead := c.AuthTime.Sub(v.now()); ahead > ClockSkew {
		c.AuthTime = time.Time{}
	}
	const sentence = "The identity provider was told to ask you for your password again, and "
	switch {
	case !f.ForceReauth:
	case c.AuthTime.IsZero() && c.AuthTimeRequired:
		return RefusedError(sentence+"does not say that it has.", errors.New("the ID token has no auth_time, or one in the "+
			"future, although max_age was asked for; for a provider that cannot say it there is require_auth_time: false"))
	case !c.AuthTime.IsZero() && c.AuthTime.Before(f.StartedAt.Add(-ClockSkew)):
		return RefusedError(sentence+"has not done so.",
			fmt.Errorf("auth_time %s is before the login began, %s", c.AuthTime.UTC(), f.StartedAt))
	}
	return nil
}

// metadata tells the provider's side who we are.
func (v *visit) metadata() {
	if !v.admitted(PathMetadata) {
		return
	}
	ctx, cancel := v.asking()
	defer cancel()
	text, err := v.provider.(PostProvider).Metadata(ctx, v.place)
	if err != nil {
		v.fail(err)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "application/samlmetadata+xml")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = v.w.Write(text) // the client may be gone
}

func unavailable(doing string, err error) error {
	return &account.Error{Code: account.CodeUnavailable, Msg: doing, Cause: err}
}
