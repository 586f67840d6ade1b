// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// personFacts identify a user. A name does not: users may choose any.
func personFacts(u *account.User) []fact {
	facts := []fact{{"User", personName(*u)}}
	if u.Email != "" && u.Email != personName(*u) {
		facts = append(facts, fact{"Email", u.Email})
	}
	return append(facts, fact{"Provider", u.Provider.Name}, fact{"Id at the provider", u.ProviderUserID},
		fact{"Id", u.ID})
}

// noReauthProvider is the name of the provider that cannot be told to authenticate a person again:
// GitHub, and its Enterprise Server.
const noReauthProvider = "GitHub"

// nextLoginText returns the sentence about how the person gets a new session.
func nextLoginText(u *account.User) string {
	if u.Provider.Name == noReauthProvider {
		return " GitHub cannot be told to ask again: a browser that is still signed in there " +
			"gets a new session without a password. " +
			"To keep the person out, block the account at GitHub, or deny it with a rule after the login action."
	}
	return " To come back, the person has to log in again: " + u.Provider.Name +
		" is told to ask, even where they are still signed in."
}

// sessionsEndText returns the beginning of the sentence about the end of a user's live sessions.
func sessionsEndText(sessions int) string {
	switch sessions {
	case 0:
		return "There is no live session"
	case 1:
		return "The session ends at once, open connections included"
	}
	return "These sessions end at once, open connections included"
}

// confirmForUser asks about a user: the question, in which %s is the user's name, with the facts
// after the user's own.
func (c *call) confirmForUser(u *account.User, q confirmation, facts ...fact) error {
	page := link{personName(*u), identitiesPath + "/" + u.ID}
	q.Question, q.Facts = fmt.Sprintf(q.Question, page.Text), append(personFacts(u), facts...)
	q.Effect += nextLoginText(u)
	q.Back, q.Danger = page.Href, true
	return c.confirm(identitiesNav, page, q)
}

// confirmEnd asks before all sessions of the user end.
func (h *identityHandlers) confirmEnd(c *call, q confirmation) error {
	u, err := h.identities.User(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return c.explainNotFound(err, h.missingIdentity)
	}
	q.Effect = sessionsEndText(u.Sessions) + q.Effect
	return c.confirmForUser(u, q, fact{"Sessions", count(u.Sessions, "live session", "live sessions")})
}

func (h *identityHandlers) confirmRevoke(c *call) error {
	return h.confirmEnd(c, confirmation{Question: "Revoke %s?", Verb: "Revoke identity", Busy: "Revoking",
		Effect: ", and what is known of the identity is deleted."})
}

func (h *identityHandlers) confirmSignOut(c *call) error {
	return h.confirmEnd(c, confirmation{Question: "Sign %s out everywhere?", Verb: "Sign out everywhere",
		Busy: "Signing out", Effect: ". The identity stays, with the endpoints accessed."})
}

// endSessions returns the number of sessions that it has ended.
func (h *identityHandlers) endSessions(c *call, selector account.RevokeSelector) (sessions int, err error) {
	done, err := h.revoker.Revoke(c.Context(), c.Caller(), selector, account.RevokedByAdmin)
	if err != nil {
		return 0, err
	}
	return len(done.SessionIDs), nil
}

func (h *identityHandlers) revoke(c *call) error {
	n, err := h.endSessions(c, account.RevokeSelector{UserID: c.ID()})
	err = c.explainNotFound(err, h.missingIdentity)
	return c.finish(err, c.returnPath(identitiesPath, identitiesPath+"/"+c.ID()), notice{noticeRevokedUser, n})
}

func (h *identityHandlers) signOut(c *call) error {
	n, err := h.endSessions(c, account.RevokeSelector{SessionsOf: c.ID()})
	err = c.explainNotFound(err, h.missingIdentity)
	return c.finish(err, c.returnPath(identitiesPath+"/"+c.ID(), sessionsPath), notice{noticeSignedOutUser, n})
}

func (h *identityHandlers) confirmRevokeSession(c *call) error {
	one, user, err := h.sessionAndUser(c)
	if err != nil {
		return err
	}
	return c.confirmForUser(user, confirmation{Question: "Revoke 1 session of %s?", Verb: "Revoke session",
		Busy: "Revoking", Effect: "It ends at once, open connections included. Other sessions of the user go on."},
		fact{"Endpoint", one.PublicURL}, fact{"Device", sessionName(one)},
		fact{"IP address", orDash(one.Device.IPAddress)})
}

func (h *identityHandlers) revokeSession(c *call) error {
	one, err := h.identities.AppSession(c.Context(), c.AccountID(), c.ID())
	if err == nil {
		_, err = h.endSessions(c, account.RevokeSelector{SessionID: one.ID})
	}
	if err != nil {
		return c.explainNotFound(err, h.missingSession)
	}
	return c.redirect(c.returnPath(identitiesPath+"/"+one.User.ID, sessionsPath), notice{Code: noticeRevoked})
}
