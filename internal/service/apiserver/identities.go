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
	Users []account.User `json:"application_users"`
	pageLinks
}

type appSessionList struct {
	Sessions []account.AppSession `json:"application_sessions"`
	pageLinks
}

type accessedList struct {
	Endpoints []account.AccessedEndpoint `json:"endpoints"`
	URI       string                     `json:"uri"`
}

var (
	appSessionParameters = append(slices.Clone(pagingParameters), "q", "provider", "user_id", "endpoint", "ip",
		"country")
	userParameters = append(slices.Clone(appSessionParameters), "sort", "before_active")
)

func (s *server) addIdentityRoutes(routes map[string]methods) {
	users, sessions := s.users(), s.appSessions()
	revoke := func(prefix string, selectBy func(id string) account.RevokeSelector) method {
		return method{scopes: revokeScopes, handle: revokeHandler(prefix, selectBy), whileDraining: true}
	}
	routes["/app/users"] = readMethods(identityScopes, s.listUsers)
	routes["/app/users/{id}"] = readMethods(identityScopes, users.getHandler(s.readUser))
	routes["/app/users/{id}"][http.MethodDelete] = revoke(account.PrefixUser,
		func(id string) account.RevokeSelector { return account.RevokeSelector{UserID: id} })
	routes["/app/users/{id}/sessions"] = methods{http.MethodDelete: revoke(account.PrefixUser,
		func(id string) account.RevokeSelector { return account.RevokeSelector{SessionsOf: id} })}
	routes["/app/users/{id}/endpoints"] = readMethods(identityScopes, s.listAccessedEndpoints)
	routes["/app/sessions"] = readMethods(identityScopes, s.listAppSessions)
	routes["/app/sessions/{id}"] = readMethods(identityScopes, sessions.getHandler(s.readAppSession))
	routes["/app/sessions/{id}"][http.MethodDelete] = revoke(account.PrefixAppSession,
		func(id string) account.RevokeSelector { return account.RevokeSelector{SessionID: id} })
}

func (s *server) users() kind[account.User] {
	return newKind(func(u *account.User) string { return u.ID },
		func(u *account.User) { u.URI = s.uri("app", "users", u.ID) },
		func(users []account.User, l pageLinks) any { return appUserList{users, l} }, "app", "users")
}

func (s *server) appSessions() kind[account.AppSession] {
	return newKind(func(a *account.AppSession) string { return a.ID },
		func(a *account.AppSession) {
			a.URI, a.User.URI = s.uri("app", "sessions", a.ID), s.uri("app", "users", a.User.ID)
			s.setEndpointRefURI(a.Endpoint)
		},
		func(sessions []account.AppSession, l pageLinks) any { return appSessionList{sessions, l} }, "app", "sessions")
}

func (s *server) listUsers(c *call) error {
	q := c.parseQuery(userParameters...)
	page, filter := q.page(), q.userFilter()
	q.readUserOrder(&filter)
	if err := q.err(); err != nil {
		return err
	}
	found, more, err := s.opt.Store.Users(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	extra := url.Values{}
	if n := len(found); n > 0 && filter.ByActivity {
		extra.Set("before_active", found[n-1].LastActive.Format(time.RFC3339Nano))
	}
	return s.users().writePage(c, q, found, more, extra)
}

func (s *server) listAppSessions(c *call) error {
	q := c.parseQuery(appSessionParameters...)
	page, filter := q.page(), q.appSessionFilter()
	if err := q.err(); err != nil {
		return err
	}
	found, more, err := s.opt.Store.AppSessions(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	return s.appSessions().writePage(c, q, found, more, nil)
}

func (s *server) readUser(c *call, id string) (*account.User, error) {
	if err := checkIDPrefix(id, account.PrefixUser); err != nil {
		return nil, err
	}
	return s.opt.Store.User(c.Context(), c.AccountID(), id)
}

func (s *server) readAppSession(c *call, id string) (*account.AppSession, error) {
	if err := checkIDPrefix(id, account.PrefixAppSession); err != nil {
		return nil, err
	}
	return s.opt.Store.AppSession(c.Context(), c.AccountID(), id)
}

// checkIDPrefix returns CodeNotFound, with the right path, for the ID of a session where that of a
// user is expected, and the other way round.
func checkIDPrefix(id, prefix string) error {
	for other, path := range map[string]string{account.PrefixUser: "/app/users/",
		account.PrefixAppSession: "/app/sessions/"} {
		if other != prefix && strings.HasPrefix(id, other+"-") {
			return account.Errorf(account.CodeNotFound, "%s cannot be here; ids that begin with %s- are at %s",
				account.Shorten(id), other, path)
		}
	}
	return nil
}

func (s *server) listAccessedEndpoints(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	if err := checkIDPrefix(c.ID(), account.PrefixUser); err != nil {
		return err
	}
	found, err := s.opt.Store.AccessedEndpoints(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	for i := range found {
		s.setEndpointRefURI(found[i].Endpoint)
	}
	return c.writeJSON(http.StatusOK, accessedList{Endpoints: found, URI: s.uri("app", "users", c.ID(), "endpoints")})
}

// revokeHandler answers when nothing of the selected sessions is served any more.
func revokeHandler(prefix string, selectBy func(id string) account.RevokeSelector) handler {
	return func(c *call) error {
		if err := c.noQuery(); err != nil {
			return err
		}
		if err := checkIDPrefix(c.ID(), prefix); err != nil {
			return err
		}
		if _, err := c.server.opt.Revoker.Revoke(c.Context(), c.Caller(), selectBy(c.ID()),
			account.RevokedByAdmin); err != nil {
			return err
		}
		return c.writeNoContent()
	}
}

func (q *query) userFilter() account.UserFilter {
	f := account.UserFilter{Query: q.values.Get("q"), Provider: q.values.Get("provider"),
		UserID: q.values.Get("user_id"),
		AccessFilter: account.AccessFilter{Endpoint: q.values.Get("endpoint"), IP: q.values.Get("ip"),
			Country: q.values.Get("country")}}
	q.fieldErrors = append(q.fieldErrors, account.FieldsOf(f.Validate())...)
	if q.values.Has("user_id") && !positionPattern.MatchString(f.UserID) {
		q.reject("user_id", f.UserID, "must be an id")
	}
	return f
}

func (q *query) appSessionFilter() account.AppSessionFilter {
	f := q.userFilter()
	return account.AppSessionFilter{Query: f.Query, Provider: f.Provider, UserID: f.UserID,
		AccessFilter: f.AccessFilter}
}

// readUserOrder reads the order of a list of users, and the position that goes with it.
func (q *query) readUserOrder(f *account.UserFilter) {
	switch by := q.values.Get("sort"); {
	case by == "last_active":
		f.ByActivity = true
	case q.values.Has("sort") && by != "created_at":
		q.reject("sort", by, "must be created_at or last_active")
	}
	before, given := q.values.Get("before_active"), q.values.Has("before_active")
	if needed := f.ByActivity && q.values.Has("before_id"); given != needed {
		q.reject("before_active", before, "goes with before_id and sort=last_active; take all three from next_page_uri")
		return
	}
	if given {
		var err error
		if f.ActiveBefore, err = time.Parse(time.RFC3339Nano, before); err != nil {
			q.reject("before_active", before, "must be a time of RFC 3339")
		}
	}
}

// setEndpointRefURI sets the URI of a reference, which is nil when the endpoint is deleted.
func (s *server) setEndpointRefURI(ref *account.Ref) {
	if ref != nil {
		ref.URI = s.uri("endpoints", ref.ID)
	}
}
