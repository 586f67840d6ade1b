// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// identityHandlers serve the people who logged in at endpoints, and their sessions.
type identityHandlers struct {
	store   account.Identities
	revoker account.Revoker
	uris    uris
}

func (h *identityHandlers) users() kind[account.User] {
	return newKind(func(u *account.User) string { return u.ID },
		func(u *account.User) { u.URI = h.uris.at(resource.Users, u.ID) })
}

func (h *identityHandlers) sessions() kind[account.AppSession] {
	return newKind(func(a *account.AppSession) string { return a.ID },
		func(a *account.AppSession) {
			a.URI, a.User.URI = h.uris.at(resource.AppSessions, a.ID), h.uris.at(resource.Users, a.User.ID)
			h.uris.setEndpointRef(a.Endpoint)
		})
}

func (h *identityHandlers) listUsers(c *call) error {
	q := c.parseQuery()
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
	q := c.parseQuery()
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
	for other, path := range map[string]string{account.PrefixUser: resource.Users + "/",
		account.PrefixAppSession: resource.AppSessions + "/"} {
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
	return c.writeList(found, c.selfLink())
}

// revokeHandler answers when nothing of the selected sessions is served any more.
func (h *identityHandlers) revokeHandler(prefix string, selectBy func(id string) account.RevokeSelector) handler {
	return func(c *call) error {
		if err := checkIDPrefix(c.ID(), prefix); err != nil {
			return err
		}
		_, err := h.revoker.Revoke(c.Context(), c.Caller(), selectBy(c.ID()), account.RevokedByAdmin)
		return c.noContent(err)
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
