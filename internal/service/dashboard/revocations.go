// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// personFacts are what one compares before a person is revoked: names may be anybody's, the ids are
// not.
func personFacts(u *account.User) []fact {
	facts := []fact{{"User", personName(*u)}}
	if u.Email != "" && u.Email != personName(*u) {
		facts = append(facts, fact{"Email", u.Email})
	}
	return append(facts, fact{"Provider", u.Provider.Name}, fact{"Id at the provider", u.ProviderUserID}, fact{"Id", u.ID})
}

// unforced is the name of the provider that cannot be told to ask a person again, and does not say
// when it did: GitHub, and its Enterprise Server.
const unforced = "GitHub"

// comingBack returns what the person has to do to get a new session.
func comingBack(u *account.User) string {
	if u.Provider.Name == unforced {
		return " GitHub cannot be told to ask again: a browser that is still signed in there " +
			"gets a new session without a password. " +
			"To keep the person out, block the account at GitHub, or deny it with a rule after the login action."
	}
	return " To come back, the person has to log in again: " + u.Provider.Name +
		" is told to ask, even where they are still signed in."
}

// endOf returns what happens to a user's live sessions, and that what follows is done.
func endOf(sessions int, none string) string {
	switch sessions {
	case 0:
		return none
	case 1:
		return "The session ends at once, open connections included"
	}
	return "These sessions end at once, open connections included"
}

func (s *server) confirmRevokeUser(c *call) error {
	u, err := s.opt.Store.User(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return s.explainGone(c, err)
	}
	return c.confirm("traffic-policy/identities", link{personName(*u), identitiesPath + "/" + u.ID}, confirmation{
		Question: "Revoke " + personName(*u) + "?", Facts: append(personFacts(u),
			fact{"Sessions", count(u.Sessions, "live session", "live sessions")}),
		Effect: endOf(u.Sessions, "There is no live session") + ", and what is known of the identity is deleted." +
			comingBack(u),
		Verb: "Revoke identity", Busy: "Revoking", Back: identitiesPath + "/" + u.ID, Danger: true,
	})
}

func (s *server) revokeUser(c *call) error {
	done, err := s.opt.Revoker.Revoke(c.Context(), c.Caller(), account.RevokeSelector{UserID: c.ID()},
		account.RevokedByAdmin)
	if err != nil {
		return s.explainGone(c, err)
	}
	to := c.after(identitiesPath)
	if strings.HasPrefix(to, identitiesPath+"/"+c.ID()) { // it is gone
		to = identitiesPath
	}
	return c.redirect(to, notice{Code: noticeRevokedUser, Count: len(done.SessionIDs)})
}

func (s *server) confirmSignOutUser(c *call) error {
	u, err := s.opt.Store.User(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return s.explainGone(c, err)
	}
	return c.confirm("traffic-policy/identities", link{personName(*u), identitiesPath + "/" + u.ID}, confirmation{
		Question: "Sign " + personName(*u) + " out everywhere?", Facts: append(personFacts(u),
			fact{"Sessions", count(u.Sessions, "live session", "live sessions")}),
		Effect: endOf(u.Sessions, "There is no live session") + ". The identity stays, with the endpoints accessed." +
			comingBack(u),
		Verb: "Sign out everywhere", Busy: "Signing out", Back: identitiesPath + "/" + u.ID, Danger: true,
	})
}

func (s *server) signOutUser(c *call) error {
	done, err := s.opt.Revoker.Revoke(c.Context(), c.Caller(), account.RevokeSelector{SessionsOf: c.ID()},
		account.RevokedByAdmin)
	if err != nil {
		return s.explainGone(c, err)
	}
	return c.redirect(c.after(identitiesPath+"/"+c.ID()), notice{Code: noticeSignedOutUser, Count: len(done.SessionIDs)})
}

func (s *server) confirmRevokeSession(c *call) error {
	one, user, err := s.sessionAndUser(c)
	if err != nil {
		return err
	}
	facts := append(personFacts(user), fact{"Endpoint", one.PublicURL}, fact{"Device", sessionName(one)},
		fact{"IP address", orDash(one.Device.IPAddress)})
	return c.confirm("traffic-policy/identities", link{personName(*user), identitiesPath + "/" + user.ID}, confirmation{
		Question: "Revoke 1 session of " + personName(*user) + "?", Facts: facts,
		Effect: "It ends at once, open connections included. Other sessions of the user go on." + comingBack(user),
		Verb:   "Revoke session", Busy: "Revoking", Back: identitiesPath + "/" + user.ID, Danger: true,
	})
}

func (s *server) revokeSession(c *call) error {
	one, err := s.opt.Store.AppSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return s.explainEnded(c, err)
	}
	if _, err := s.opt.Revoker.Revoke(c.Context(), c.Caller(), account.RevokeSelector{SessionID: one.ID},
		account.RevokedByAdmin); err != nil {
		return s.explainEnded(c, err)
	}
	to := c.after(identitiesPath + "/" + one.User.ID)
	if strings.HasPrefix(to, Path+"traffic-policy/sessions/") { // it is gone
		to = identitiesPath + "/" + one.User.ID
	}
	return c.redirect(to, notice{Code: noticeRevoked})
}
