// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// visited is an endpoint that a user has been to, with the sessions there that live.
type visited struct {
	account.AccessedEndpoint
	Sessions []account.AppSession
}

type userPage struct {
	account.User
	Visited []visited
	More    bool // there are more sessions than are shown
}

const sessionsShown = 200

func (s *server) user(c *call) error {
	p, err := s.userPage(c)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "identity", Title: personName(p.User), Nav: "traffic-policy/identities",
		Crumb: &link{"Identities", identitiesPath}, Live: "audit", Poll: true, Data: p})
}

// userPage reads a user, the endpoints that they have accessed, and the newest of their sessions at
// each.
func (s *server) userPage(c *call) (*userPage, error) {
	u, err := s.opt.Store.User(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return nil, s.explainGone(c, err)
	}
	p := &userPage{User: *u}
	accessed, err := s.opt.Store.AccessedEndpoints(c.Context(), c.AccountID(), u.ID)
	if err != nil {
		return nil, err
	}
	sessions, more, err := s.opt.Store.AppSessions(c.Context(), c.AccountID(), account.AppSessionFilter{UserID: u.ID},
		account.Page{Limit: sessionsShown})
	if err != nil {
		return nil, err
	}
	p.More = more
	byURL := map[string]int{}
	add := func(a account.AccessedEndpoint) {
		byURL[a.URL] = len(p.Visited)
		p.Visited = append(p.Visited, visited{AccessedEndpoint: a})
	}
	for _, a := range accessed {
		add(a)
	}
	for _, one := range sessions {
		if _, known := byURL[one.PublicURL]; !known {
			add(account.AccessedEndpoint{URL: one.PublicURL, Endpoint: one.Endpoint, First: one.CreatedAt, Last: one.LastActive})
		}
		at := &p.Visited[byURL[one.PublicURL]]
		at.Sessions = append(at.Sessions, one)
	}
	return p, nil
}

// accessPage is what a user does at one endpoint: each of their sessions there in full.
type accessPage struct {
	visited
	Person account.User
	More   bool // the user has more sessions than are looked at
}

func (s *server) access(c *call) error {
	p, err := s.userPage(c)
	if err != nil {
		return err
	}
	at := c.Request.URL.Query().Get("url")
	for _, v := range p.Visited {
		if v.URL == at {
			return c.show(http.StatusOK, view{Page: "access", Title: v.URL, Nav: "traffic-policy/identities",
				Crumb: &link{personName(p.User), identitiesPath + "/" + p.ID}, Live: "audit", Poll: true,
				Data: accessPage{v, p.User, p.More}})
		}
	}
	c.gone = &gone{Title: "Not accessed", Text: personName(p.User) + " has not accessed an endpoint with this URL.",
		Back: link{"Back to " + personName(p.User), identitiesPath + "/" + p.ID}}
	return account.Errorf(account.CodeNotFound, "the user has not accessed an endpoint with this URL")
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
	return c.show(http.StatusOK, view{Page: "session", Title: sessionName(one), Nav: "traffic-policy/identities",
		Crumb: &link{personName(*user), identitiesPath + "/" + user.ID}, Live: "audit", Poll: true,
		Data: sessionPage{*one, *user}})
}

func (s *server) sessionAndUser(c *call) (*account.AppSession, *account.User, error) {
	one, err := s.opt.Store.AppSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return nil, nil, s.explainEnded(c, err)
	}
	user, err := s.opt.Store.User(c.Context(), c.AccountID(), one.User.ID)
	if err != nil {
		return nil, nil, s.explainEnded(c, err)
	}
	return one, user, nil
}

// sessionName is how people tell a session from others: by its browser and system, as far as they
// are known.
func sessionName(one *account.AppSession) string {
	a := one.Device.UserAgent
	if a.OSName == "" {
		return browserName(a)
	}
	return browserName(a) + " on " + systemName(a)
}
