// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// notFoundPage is what the error page of an object that does not exist shows instead of the error's
// message.
type notFoundPage struct {
	Title, Text string
	At          time.Time // time of the deletion; zero = not known
	Back        link
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
