// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// gone is what a page says, in the place of the error's own words, of something that is not there
// any more.
type gone struct {
	Title, Text string
	At          time.Time // zero = not known
	Back        link
}

// explainGone makes the error page of a user who does not exist say whether they were revoked, and
// lead back to the list.
func (s *server) explainGone(c *call, err error) error {
	if account.CodeOf(err) != account.CodeNotFound {
		return err
	}
	c.gone = &gone{Title: "This identity is not there", Back: link{"Back to the identities", identitiesPath},
		Text: "There is no identity with this id. If there was one, it was revoked: " +
			"what is known of an identity is deleted with it."}
	if e := s.lastEvent(c, c.ID(), account.AuditAppUserRevoked); e != nil {
		c.gone.Title, c.gone.At = "This identity was revoked", e.OccurredAt
		c.gone.Text = "Its sessions have ended, and what was known of it is deleted. " +
			"A person who logs in again appears in the list as a new identity."
		if e.Details["reason"] == account.RevokedByRetention {
			c.gone.Title = "This identity was deleted"
			c.gone.Text = "The person was away for longer than identities are kept. " +
				"Who logs in again appears in the list as a new identity."
		}
	}
	return err
}

// explainEnded makes the error page of a session that does not live say whether it was revoked, and
// lead back to its user.
func (s *server) explainEnded(c *call, err error) error {
	if account.CodeOf(err) != account.CodeNotFound {
		return err
	}
	c.gone = &gone{Title: "This session is not there", Back: link{"Back to the identities", identitiesPath},
		Text: "There is no live session with this id. What is known of a session's device and place is deleted when it ends."}
	began := s.lastEvent(c, c.ID(), account.AuditAppSessionCreated)
	if began != nil {
		c.gone.Title, c.gone.Text = "This session has ended",
			"Its time was up, or it ended with its identity. What was known of its device and place is deleted."
		c.gone.Back = link{"Back to the identity", identitiesPath + "/" + began.Details["user_id"]}
	}
	if ended := s.lastEvent(c, c.ID(), account.AuditAppSessionRevoked); ended != nil {
		c.gone.Title, c.gone.At = "This session has ended", ended.OccurredAt
		c.gone.Text = "It was ended: " + ended.Details["reason"] + ". What was known of its device and place is deleted."
		c.gone.Back = link{"Back to the identity", identitiesPath + "/" + ended.Details["user_id"]}
	}
	return err
}

// lastEvent returns the newest event of the type about the object, nil without one. The page says
// less when the log cannot be read.
func (s *server) lastEvent(c *call, objectID string, of account.AuditType) *account.AuditEvent {
	found, err := s.opt.Store.AuditEvents(c.Context(), c.AccountID(), account.AuditFilter{ObjectID: objectID, Type: of},
		account.Page{Limit: 1})
	if err != nil || len(found.Events) == 0 {
		return nil
	}
	return &found.Events[0]
}
