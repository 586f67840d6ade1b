// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const identitiesPath = Path + "traffic-policy/identities"

type usersPage struct {
	Query, Provider string
	Guessed         bool // what was typed is a provider, and no user has it
	Providers       []account.IdentityProvider
	Known           bool // the provider is one of Providers
	Rows            []account.User
	Pager           pager
}

// Filtered says whether not all are asked for.
func (p usersPage) Filtered() bool { return p.Query != "" || p.Provider != "" }

// users lists identities. What is typed is looked for in the users and, when none has it, in the names of providers.
func (s *server) users(c *call) error {
	p := usersPage{Query: c.asked("q"), Provider: c.asked("provider")}
	var err error
	if p.Providers, err = s.opt.Identities.IdentityProviders(c.ctx(), c.accountID()); err != nil {
		return err
	}
	for _, known := range p.Providers {
		p.Known = p.Known || known.Name == p.Provider
	}
	filter := account.UserFilter{Query: p.Query, Provider: p.Provider}
	rows, more, err := s.opt.Identities.Users(c.ctx(), c.accountID(), filter, c.page())
	if err != nil {
		return err
	}
	if len(rows) == 0 && p.Query != "" && p.Provider == "" {
		filter = account.UserFilter{Provider: p.Query}
		if rows, more, err = s.opt.Identities.Users(c.ctx(), c.accountID(), filter, c.page()); err != nil {
			return err
		}
		p.Guessed = len(rows) > 0
	}
	last := ""
	if n := len(rows); n > 0 {
		last = rows[n-1].ID
	}
	p.Rows, p.Pager = rows, c.pagerOf(len(rows), more, last, url.Values{"q": {p.Query}, "provider": {p.Provider}})
	return c.show(http.StatusOK, view{Page: "identities", Title: "Identities", Nav: "traffic-policy/identities", Live: "audit", Poll: true, Data: p})
}

// visited is an endpoint that a user has been to, with the sessions there that live.
type visited struct {
	account.Accessed
	Sessions []account.AppSession
}

type userPage struct {
	account.User
	Visited []visited
	More    bool // there are more sessions than are shown
}

const sessionsShown = 200

func (s *server) user(c *call) error {
	u, err := s.opt.Identities.User(c.ctx(), c.accountID(), c.id())
	if err != nil {
		return err
	}
	p := userPage{User: *u}
	accessed, err := s.opt.Identities.Accessed(c.ctx(), c.accountID(), u.ID)
	if err != nil {
		return err
	}
	sessions, more, err := s.opt.Identities.AppSessions(c.ctx(), c.accountID(), account.AppSessionFilter{UserID: u.ID}, account.Page{Limit: sessionsShown})
	if err != nil {
		return err
	}
	p.More = more
	byURL := map[string]int{}
	for i, a := range accessed {
		byURL[a.URL] = i
		p.Visited = append(p.Visited, visited{Accessed: a})
	}
	for _, one := range sessions {
		i, known := byURL[one.PublicURL]
		if !known {
			i = len(p.Visited)
			byURL[one.PublicURL] = i
			p.Visited = append(p.Visited, visited{Accessed: account.Accessed{URL: one.PublicURL, Endpoint: one.Endpoint, First: one.CreatedAt, Last: one.LastActive}})
		}
		p.Visited[i].Sessions = append(p.Visited[i].Sessions, one)
	}
	return c.show(http.StatusOK, view{Page: "identity", Title: personName(*u), Nav: "traffic-policy/identities", Crumb: &link{"Identities", identitiesPath},
		Live: "audit", Poll: true, Data: p})
}

type sessionPage struct {
	account.AppSession
	Person account.User
}

func (s *server) session(c *call) error {
	one, user, err := s.sessionAndUser(c)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "session", Title: "Session", Nav: "traffic-policy/identities",
		Crumb: &link{personName(*user), identitiesPath + "/" + user.ID}, Live: "audit", Poll: true, Data: sessionPage{*one, *user}})
}

func (s *server) sessionAndUser(c *call) (*account.AppSession, *account.User, error) {
	one, err := s.opt.Identities.AppSession(c.ctx(), c.accountID(), c.id())
	if err != nil {
		return nil, nil, err
	}
	user, err := s.opt.Identities.User(c.ctx(), c.accountID(), one.User.ID)
	return one, user, err
}

func personFacts(u *account.User) []fact {
	facts := []fact{{"User", personName(*u)}}
	if u.Email != "" && u.Email != personName(*u) {
		facts = append(facts, fact{"Email", u.Email})
	}
	return append(facts, fact{"Provider", u.Provider.Name})
}

func (s *server) confirmRevokeUser(c *call) error {
	u, err := s.opt.Identities.User(c.ctx(), c.accountID(), c.id())
	if err != nil {
		return err
	}
	effect := "There is no live session. What is known of the identity is deleted."
	if u.Sessions > 0 {
		these := "These sessions end"
		if u.Sessions == 1 {
			these = "The session ends"
		}
		effect = these + " at once, open connections included, and what is known of the identity is deleted."
	}
	return c.confirm("traffic-policy/identities", link{personName(*u), identitiesPath + "/" + u.ID}, confirmation{
		Question: "Revoke " + personName(*u) + "?", Facts: append(personFacts(u), fact{"Sessions", count(u.Sessions, "live session", "live sessions")}),
		Effect: effect + " To come back, they have to log in at the identity provider again.",
		Verb:   "Revoke identity", Busy: "Revoking", Back: identitiesPath + "/" + u.ID, Danger: true,
	})
}

func (s *server) revokeUser(c *call) error {
	done, err := s.opt.Revoker.Revoke(c.ctx(), c.caller(), account.RevokeSelector{UserID: c.id()}, account.RevokedByAdmin)
	if err != nil {
		return err
	}
	to := c.after(identitiesPath)
	if strings.HasPrefix(to, identitiesPath+"/"+c.id()) { // it is gone
		to = identitiesPath
	}
	return c.redirect(to, notice{Code: noticeRevokedUser, Count: len(done.SessionIDs)})
}

func (s *server) confirmRevokeSession(c *call) error {
	one, user, err := s.sessionAndUser(c)
	if err != nil {
		return err
	}
	device := browserName(one.Device.UserAgent) + " on " + systemName(one.Device.UserAgent)
	facts := append(personFacts(user), fact{"Endpoint", one.PublicURL}, fact{"Device", device}, fact{"IP address", orDash(one.Device.IPAddress)})
	return c.confirm("traffic-policy/identities", link{personName(*user), identitiesPath + "/" + user.ID}, confirmation{
		Question: "Revoke 1 session of " + personName(*user) + "?", Facts: facts,
		Effect: "It ends at once, open connections included. Other sessions of the user go on.",
		Verb:   "Revoke session", Busy: "Revoking", Back: identitiesPath + "/" + user.ID, Danger: true,
	})
}

func (s *server) revokeSession(c *call) error {
	one, err := s.opt.Identities.AppSession(c.ctx(), c.accountID(), c.id())
	if err != nil {
		return err
	}
	if _, err := s.opt.Revoker.Revoke(c.ctx(), c.caller(), account.RevokeSelector{SessionID: one.ID}, account.RevokedByAdmin); err != nil {
		return err
	}
	to := c.after(identitiesPath + "/" + one.User.ID)
	if strings.HasPrefix(to, Path+"traffic-policy/sessions/") { // it is gone
		to = identitiesPath + "/" + one.User.ID
	}
	return c.redirect(to, notice{Code: noticeRevoked})
}
