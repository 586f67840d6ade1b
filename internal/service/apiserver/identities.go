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

// identityHandlers serve the people who logged in at endpoints, and their sessions.
type identityHandlers struct {
	store   account.Identities
	revoker account.Revoker
	uris    uris
}

func (h *identityHandlers) users() kind[account.User] {
	return newKind(func(u *account.User) string { return u.ID },
		func(u *account.User) { u.URI = h.uris.at("app", "users", u.ID) },
		func(users []account.User, l pageLinks) any { return appUserList{users, l} }, "app", "users")
}

func (h *identityHandlers) sessions() kind[account.AppSession] {
	return newKind(func(a *account.AppSession) string { return a.ID },
		func(a *account.AppSession) {
			a.URI, a.User.URI = h.uris.at("app", "sessions", a.ID), h.uris.at("app", "users", a.User.ID)
			h.uris.setEndpointRef(a.Endpoint)
		},
		func(sessions []account.AppSession, l pageLinks) any { return appSessionList{sessions, l} }, "app", "sessions")
}

func (h *identityHandlers) listUsers(c *call) error {
	q := c.parseQuery(userParameters...)
	page, filter := q.page(), q.userFilter()
	q.readUserOrder(&filter)
	if err := q.err(); err != nil {
		return err
	}
	found, more, err := h.store.Users(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	extra := url.Values{}
	if n := len(found); n > 0 && filter.ByActivity {
		extra.Set("before_active", found[n-1].LastActive.Format(time.RFC3339Nano))
	}
	return h.users().writePage(c, q, found, more, extra)
}

func (h *identityHandlers) listSessions(c *call) error {
	q := c.parseQuery(appSessionParameters...)
	page, filter := q.page(), q.appSessionFilter()
	if err := q.err(); err != nil {
		return err
	}
	found, more, err := h.store.AppSessions(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	return h.sessions().writePage(c, q, found, more, nil)
}

func (h *identityHandlers) readUser(c *call, id string) (*account.User, error) {
	if err := checkIDPrefix(id, account.PrefixUser); err != nil {
		return nil, err
	}
	return h.store.User(c.Context(), c.AccountID(), id)
}

func (h *identityHandlers) readSession(c *call, id string) (*account.AppSession, error) {
	if err := checkIDPrefix(id, account.PrefixAppSession); err != nil {
		return nil, err
	}
	return h.store.AppSession(c.Context(), c.AccountID(), id)
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

func (h *identityHandlers) listAccessed(c *call) error {
	if err := checkIDPrefix(c.ID(), account.PrefixUser); err != nil {
		return err
	}
	found, err := h.store.AccessedEndpoints(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	for i := range found {
		h.uris.setEndpointRef(found[i].Endpoint)
	}
	return c.writeJSON(http.StatusOK, accessedList{found, h.uris.at("app", "users", c.ID(), "endpoints")})
}

// revokeMethod answers when nothing of the selected sessions is served any more.
func (h *identityHandlers) revokeMethod(prefix string, selectBy func(id string) account.RevokeSelector) method {
	return method{scopes: revokeScopes, whileDraining: true, handle: func(c *call) error {
		if err := checkIDPrefix(c.ID(), prefix); err != nil {
			return err
		}
		_, err := h.revoker.Revoke(c.Context(), c.Caller(), selectBy(c.ID()), account.RevokedByAdmin)
		return c.noContent(err)
	}}
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
