// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"maps"
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

// eventRow is an event as pages show it.
type eventRow struct {
	account.AuditEvent
}

// Text describes the type of the event.
func (e eventRow) Text() string { return eventText(e.Type) }

// Facts returns the details, sorted by name.
func (e eventRow) Facts() []fact {
	facts := make([]fact, 0, len(e.Details))
	for _, name := range slices.Sorted(maps.Keys(e.Details)) {
		value := e.Details[name]
		if idPattern.MatchString(value) {
			value = shortID(value)
		}
		if value != "" {
			facts = append(facts, fact{strings.ReplaceAll(name, "_", " "), value})
		}
	}
	return facts
}

// eventText describes a type: "Agent connected" for "tunnel_session.started".
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
	name := cmp.Or(names[noun], sentenceCase(strings.ReplaceAll(noun, "_", " ")))
	return strings.TrimSpace(name + " " + strings.ReplaceAll(verb, "_", " "))
}

func sentenceCase(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// eventHandlers serve the page of what happened.
type eventHandlers struct{ audit account.AuditLog }

func (h *eventHandlers) list(c *call) error {
	p := eventsPage{ObjectID: c.queryText("object_id")}
	for _, t := range account.AuditTypes() {
		p.Types = append(p.Types, t)
		if c.Request.URL.Query().Get("type") == string(t) {
			p.Type = string(t)
		}
	}
	if !idPattern.MatchString(p.ObjectID) {
		p.ObjectID = ""
	}
	found, err := h.audit.AuditEvents(c.Context(), c.AccountID(),
		account.AuditFilter{Type: account.AuditType(p.Type), ObjectID: p.ObjectID}, c.page())
	if err != nil {
		return err
	}
	for _, e := range found.Events {
		p.Rows = append(p.Rows, eventRow{e})
	}
	p.Pager = pagerOf(c, found.Events, found.More, auditEventID,
		url.Values{"type": {p.Type}, "object_id": {p.ObjectID}})
	return c.show(http.StatusOK, view{Page: "events", Title: "Events", Nav: "events", Live: "audit", Data: p})
}

// lastEvent returns the newest event of the type about the object, nil without one. The page says
// less when the log cannot be read.
func lastEvent(c *call, log account.AuditLog, objectID string, of account.AuditType) *account.AuditEvent {
	found, err := log.AuditEvents(c.Context(), c.AccountID(),
		account.AuditFilter{ObjectID: objectID, Type: of}, account.Page{Limit: 1})
	if err != nil || len(found.Events) == 0 {
		return nil
	}
	return &found.Events[0]
}
