// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type eventsPage struct {
	Type     string
	ObjectID string
	Types    []account.AuditType
	Rows     []eventRow
	Pager    pager
}

// eventRow is an event in words.
type eventRow struct {
	account.AuditEvent
}

// What says what happened.
func (e eventRow) What() string { return eventText(e.Type) }

// Facts are the details, in an order.
func (e eventRow) Facts() []fact {
	facts := make([]fact, 0, len(e.Details))
	for _, text := range labelKeys(e.Details) {
		if e.Details[text] != "" {
			value := e.Details[text]
			if positionPattern.MatchString(value) {
				value = shortID(value)
			}
			facts = append(facts, fact{strings.ReplaceAll(text, "_", " "), value})
		}
	}
	return facts
}

func labelKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// eventText makes words of a type: "tunnel_session.started" is "Agent connected".
func eventText(t account.AuditType) string {
	switch t {
	case account.AuditSessionStarted:
		return "Agent connected"
	case account.AuditSessionEnded:
		return "Agent disconnected"
	case account.AuditBackendSwitched:
		return "Backend switched over"
	}
	noun, verb, _ := strings.Cut(string(t), ".")
	names := map[string]string{"kubernetes_operator": "Kubernetes operator", "api_key": "API key",
		"credential": "Authtoken", "application_user": "Identity",
		"application_session": "Session"}
	name := names[noun]
	if name == "" {
		name = sentenceCase(strings.ReplaceAll(noun, "_", " "))
	}
	return strings.TrimSpace(name + " " + strings.ReplaceAll(verb, "_", " "))
}

func sentenceCase(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (s *server) events(c *call) error {
	p := eventsPage{ObjectID: c.asked("object_id")}
	for _, t := range account.AuditTypes() {
		p.Types = append(p.Types, t)
		if c.Request.URL.Query().Get("type") == string(t) {
			p.Type = string(t)
		}
	}
	if !positionPattern.MatchString(p.ObjectID) {
		p.ObjectID = ""
	}
	found, err := s.opt.Store.AuditEvents(c.Context(), c.AccountID(),
		account.AuditFilter{Type: account.AuditType(p.Type), ObjectID: p.ObjectID}, c.page())
	if err != nil {
		return err
	}
	last := ""
	for _, e := range found.Events {
		p.Rows, last = append(p.Rows, eventRow{e}), e.ID
	}
	p.Pager = c.pagerOf(len(p.Rows), found.More, last, url.Values{"type": {p.Type}, "object_id": {p.ObjectID}})
	return c.show(http.StatusOK, view{Page: "events", Title: "Events", Nav: "events", Live: "audit", Data: p})
}
