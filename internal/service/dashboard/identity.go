// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// accessedEndpoint is an endpoint that a user has accessed, with the user's live sessions there.
type accessedEndpoint struct {
	account.AccessedEndpoint
	Sessions []account.AppSession
}

type userPage struct {
	account.User
	Accessed []accessedEndpoint
	More     bool // there are more sessions than are shown
}

const sessionsShown = 200

func (h *identityHandlers) show(c *call) error {
	p, err := h.userPage(c)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "identity", Title: personName(p.User), Nav: identitiesNav,
		Crumb: &link{"Identities", identitiesPath}, Live: "audit", Poll: true, Data: p})
}

// userPage returns a user, the endpoints that the user has accessed, and the newest sessions at
// each.
func (h *identityHandlers) userPage(c *call) (*userPage, error) {
	u, err := h.identities.User(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return nil, c.explainNotFound(err, h.missingIdentity)
	}
	p := &userPage{User: *u}
	accessed, err := h.identities.AccessedEndpoints(c.Context(), c.AccountID(), u.ID)
	if err != nil {
		return nil, err
	}
	sessions, more, err := h.identities.AppSessions(c.Context(), c.AccountID(), account.AppSessionFilter{UserID: u.ID},
		account.Page{Limit: sessionsShown})
	if err != nil {
		return nil, err
	}
	p.More = more
	byURL := map[string]int{}
	add := func(a account.AccessedEndpoint) {
		byURL[a.URL] = len(p.Accessed)
		p.Accessed = append(p.Accessed, accessedEndpoint{AccessedEndpoint: a})
	}
	for _, a := range accessed {
		add(a)
	}
	for _, one := range sessions {
		if _, known := byURL[one.PublicURL]; !known {
			add(account.AccessedEndpoint{URL: one.PublicURL, Endpoint: one.Endpoint, First: one.CreatedAt,
				Last: one.LastActive})
		}
		at := &p.Accessed[byURL[one.PublicURL]]
		at.Sessions = append(at.Sessions, one)
	}
	return p, nil
}

// accessPage is one endpoint that a user has accessed: each session there in full.
type accessPage struct {
	accessedEndpoint
	Person account.User
	More   bool // the user has more sessions than were read
}

func (h *identityHandlers) showAccess(c *call) error {
	p, err := h.userPage(c)
	if err != nil {
		return err
	}
	at := c.Request.URL.Query().Get("url")
	for _, v := range p.Accessed {
		if v.URL == at {
			return c.show(http.StatusOK, view{Page: "access", Title: v.URL, Nav: identitiesNav,
				Crumb: &link{personName(p.User), identitiesPath + "/" + p.ID}, Live: "audit", Poll: true,
				Data: accessPage{v, p.User, p.More}})
		}
	}
	c.notFound = &notFoundPage{Title: "Not accessed",
		Text: personName(p.User) + " has not accessed an endpoint with this URL.",
		Back: link{"Back to " + personName(p.User), identitiesPath + "/" + p.ID}}
	return account.Errorf(account.CodeNotFound, "the user has not accessed an endpoint with this URL")
}

type sessionPage struct {
	account.AppSession
	Person account.User
}

func (h *identityHandlers) showSession(c *call) error {
	one, user, err := h.sessionAndUser(c)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "session", Title: sessionName(one), Nav: identitiesNav,
		Crumb: &link{personName(*user), identitiesPath + "/" + user.ID}, Live: "audit", Poll: true,
		Data: sessionPage{*one, *user}})
}

func (h *identityHandlers) sessionAndUser(c *call) (*account.AppSession, *account.User, error) {
	one, err := h.identities.AppSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return nil, nil, c.explainNotFound(err, h.missingSession)
	}
	user, err := h.identities.User(c.Context(), c.AccountID(), one.User.ID)
	if err != nil {
		return nil, nil, c.explainNotFound(err, h.missingSession)
	}
	return one, user, nil
}

// sessionName names a session by its browser and system, as far as they are known.
func sessionName(one *account.AppSession) string {
	a := one.Device.UserAgent
	if a.OSName == "" {
		return browserName(a)
	}
	return browserName(a) + " on " + systemName(a)
}

// missingIdentity returns the page of an identity that does not exist: whether it was revoked, and
// when.
func (h *identityHandlers) missingIdentity(c *call) *notFoundPage {
	p := &notFoundPage{Title: "This identity is not there", Back: link{"Back to the identities", identitiesPath},
		Text: "There is no identity with this id. If there was one, it was revoked: " +
			"what is known of an identity is deleted with it."}
	e := lastEvent(c, h.audit, c.ID(), account.AuditAppUserRevoked)
	switch {
	case e == nil:
		return p
	case e.Details["reason"] == account.RevokedByRetention:
		p.Title = "This identity was deleted"
		p.Text = "The person was away for longer than identities are kept. " +
			"A person who logs in again appears in the list as a new identity."
	default:
		p.Title = "This identity was revoked"
		p.Text = "Its sessions have ended, and what was known of it is deleted. " +
			"A person who logs in again appears in the list as a new identity."
	}
	p.At = e.OccurredAt
	return p
}

// missingSession returns the page of a session that does not exist: why and when it ended, with a
// link to its identity.
func (h *identityHandlers) missingSession(c *call) *notFoundPage {
	p := &notFoundPage{Title: "This session is not there", Back: link{"Back to the identities", identitiesPath},
		Text: "There is no live session with this id. What is known of a session's device and place is deleted when " +
			"it ends."}
	e := lastEvent(c, h.audit, c.ID(), account.AuditAppSessionRevoked)
	if e != nil {
		p.At = e.OccurredAt
		p.Text = "It was ended: " + e.Details["reason"] + ". What was known of its device and place is deleted."
	} else if e = lastEvent(c, h.audit, c.ID(), account.AuditAppSessionCreated); e != nil {
		p.Text = "Its time was up, or it ended with its identity. What was known of its device and place is deleted."
	} else {
		return p
	}
	p.Title, p.Back = "This session has ended", link{"Back to the identity",
		identitiesPath + "/" + e.Details["user_id"]}
	return p
}
