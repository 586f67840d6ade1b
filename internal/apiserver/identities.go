// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type appUserList struct {
	Users       []account.User `json:"application_users"`
	URI         string         `json:"uri"`
	NextPageURI *string        `json:"next_page_uri"`
}

type appSessionList struct {
	Sessions    []account.AppSession `json:"application_sessions"`
	URI         string               `json:"uri"`
	NextPageURI *string              `json:"next_page_uri"`
}

type accessedList struct {
	Endpoints []account.AccessedEndpoint `json:"endpoints"`
	URI       string                     `json:"uri"`
}

var (
	searching  = []string{"before_id", "limit", "q", "provider", "user_id", "endpoint", "ip", "country"}
	usersQuery = append(slices.Clone(searching), "sort", "before_active")
)

func (s *server) identityRoutes(routes map[string]map[string]method) {
	routes["/app/users"] = map[string]method{http.MethodGet: {seeing, s.listUsers}}
	routes["/app/users/{id}"] = map[string]method{http.MethodGet: {seeing, s.getUser},
		http.MethodDelete: {revoking, s.revokeUser}}
	routes["/app/users/{id}/sessions"] = map[string]method{http.MethodDelete: {revoking, s.revokeSessionsOf}}
	routes["/app/users/{id}/endpoints"] = map[string]method{http.MethodGet: {seeing, s.listAccessed}}
	routes["/app/sessions"] = map[string]method{http.MethodGet: {seeing, s.listAppSessions}}
	routes["/app/sessions/{id}"] = map[string]method{http.MethodGet: {seeing, s.getAppSession},
		http.MethodDelete: {revoking, s.revokeAppSession}}
}

func (s *server) listUsers(c *call) error {
	q := c.parseQuery(usersQuery...)
	page, filter := q.page(), q.userFilter()
	q.activity(&filter)
	if err := q.err(); err != nil {
		return err
	}
	found, more, err := s.opt.Identities.Users(c.r.Context(), c.accountID(), filter, page)
	if err != nil {
		return err
	}
	list := appUserList{Users: found, URI: s.uri("app", "users")}
	for i := range list.Users {
		s.fillUser(&list.Users[i])
	}
	if n := len(list.Users); n > 0 {
		extra := url.Values{}
		if filter.ByActivity {
			extra.Set("before_active", list.Users[n-1].LastActive.Format(time.RFC3339Nano))
		}
		list.NextPageURI = c.nextPage(more, list.URI, list.Users[n-1].ID, q, extra)
	}
	return c.writeJSON(http.StatusOK, list)
}

func (s *server) listAppSessions(c *call) error {
	q := c.parseQuery(searching...)
	page, filter := q.page(), q.appSessionFilter()
	if err := q.err(); err != nil {
		return err
	}
	found, more, err := s.opt.Identities.AppSessions(c.r.Context(), c.accountID(), filter, page)
	if err != nil {
		return err
	}
	list := appSessionList{Sessions: found, URI: s.uri("app", "sessions")}
	for i := range list.Sessions {
		s.fillAppSession(&list.Sessions[i])
	}
	if n := len(list.Sessions); n > 0 {
		list.NextPageURI = c.nextPage(more, list.URI, list.Sessions[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

// appID is the id in the path, of a user or of a session. One of the other kind is told where it
// belongs.
func (c *call) appID(prefix string) (string, error) {
	if err := c.noQuery(); err != nil {
		return "", err
	}
	id := c.r.PathValue("id")
	for other, at := range map[string]string{account.PrefixUser: "/app/users/",
		account.PrefixAppSession: "/app/sessions/"} {
		if other != prefix && strings.HasPrefix(id, other+"-") {
			return "", account.Errorf(account.CodeNotFound, "%s cannot be here; ids that begin with %s- are at %s",
				account.Shorten(id), other, at)
		}
	}
	return id, nil
}

func (s *server) getUser(c *call) error {
	id, err := c.appID(account.PrefixUser)
	if err != nil {
		return err
	}
	found, err := s.opt.Identities.User(c.r.Context(), c.accountID(), id)
	if err != nil {
		return err
	}
	s.fillUser(found)
	return c.writeJSON(http.StatusOK, found)
}

func (s *server) listAccessed(c *call) error {
	id, err := c.appID(account.PrefixUser)
	if err != nil {
		return err
	}
	found, err := s.opt.Identities.AccessedEndpoints(c.r.Context(), c.accountID(), id)
	if err != nil {
		return err
	}
	for i := range found {
		s.fillEndpointRef(found[i].Endpoint)
	}
	return c.writeJSON(http.StatusOK, accessedList{Endpoints: found, URI: s.uri("app", "users", id, "endpoints")})
}

func (s *server) getAppSession(c *call) error {
	id, err := c.appID(account.PrefixAppSession)
	if err != nil {
		return err
	}
	found, err := s.opt.Identities.AppSession(c.r.Context(), c.accountID(), id)
	if err != nil {
		return err
	}
	s.fillAppSession(found)
	return c.writeJSON(http.StatusOK, found)
}

func (s *server) revokeUser(c *call) error {
	id, err := c.appID(account.PrefixUser)
	if err != nil {
		return err
	}
	return c.revoke(account.RevokeSelector{UserID: id})
}

// revokeSessionsOf ends all sessions of a user and keeps the user.
func (s *server) revokeSessionsOf(c *call) error {
	id, err := c.appID(account.PrefixUser)
	if err != nil {
		return err
	}
	return c.revoke(account.RevokeSelector{SessionsOf: id})
}

func (s *server) revokeAppSession(c *call) error {
	id, err := c.appID(account.PrefixAppSession)
	if err != nil {
		return err
	}
	return c.revoke(account.RevokeSelector{SessionID: id})
}

// revoke ends the sessions and answers with 204.
func (c *call) revoke(sel account.RevokeSelector) error {
	if _, err := c.server.opt.Revoker.Revoke(c.r.Context(), c.caller(), sel, account.RevokedByAdmin); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (q *query) userFilter() account.UserFilter {
	f := account.UserFilter{Query: q.values.Get("q"), Provider: q.values.Get("provider"), UserID: q.values.Get("user_id"),
		AccessFilter: account.AccessFilter{Endpoint: q.values.Get("endpoint"), IP: q.values.Get("ip"),
			Country: q.values.Get("country")}}
	q.broken = append(q.broken, account.FieldsOf(f.Validate())...)
	if q.values.Has("user_id") && !positionPattern.MatchString(f.UserID) {
		q.bad("user_id", f.UserID, "must be an id")
	}
	return f
}

func (q *query) appSessionFilter() account.AppSessionFilter {
	f := q.userFilter()
	return account.AppSessionFilter{Query: f.Query, Provider: f.Provider, UserID: f.UserID, AccessFilter: f.AccessFilter}
}

// activity reads the order of a list of users, and the position that goes with it.
func (q *query) activity(f *account.UserFilter) {
	switch by := q.values.Get("sort"); {
	case by == "last_active":
		f.ByActivity = true
	case q.values.Has("sort") && by != "created_at":
		q.bad("sort", by, "must be created_at or last_active")
	}
	before, given := q.values.Get("before_active"), q.values.Has("before_active")
	if needed := f.ByActivity && q.values.Has("before_id"); given != needed {
		q.bad("before_active", before, "goes with before_id and sort=last_active; take all three from next_page_uri")
		return
	}
	if given {
		var err error
		if f.ActiveBefore, err = time.Parse(time.RFC3339Nano, before); err != nil {
			q.bad("before_active", before, "must be a time of RFC 3339")
		}
	}
}

func (s *server) fillUser(u *account.User) { u.URI = s.uri("app", "users", u.ID) }

func (s *server) fillAppSession(a *account.AppSession) {
	a.URI, a.User.URI = s.uri("app", "sessions", a.ID), s.uri("app", "users", a.User.ID)
	s.fillEndpointRef(a.Endpoint)
}

// fillEndpointRef sets the URI of an endpoint, which may be gone.
func (s *server) fillEndpointRef(ref *account.Ref) {
	if ref != nil {
		ref.URI = s.uri("endpoints", ref.ID)
	}
}
