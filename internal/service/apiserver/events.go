// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type auditList struct {
	Events []account.AuditEvent `json:"events"`
	pageLinks
	ResourceVersion account.ResourceVersion `json:"resource_version"`
}

func (s *server) auditEvents(page func([]account.AuditEvent, pageLinks) any) kind[account.AuditEvent] {
	return newKind(func(e *account.AuditEvent) string { return e.ID }, s.setAuditURIs, page, "events")
}

func (s *server) listAuditEvents(c *call) error {
	q := c.parseQuery("type", "object_id", "before_id", "limit", "watch", "resource_version")
	filter, page, version, watch := q.auditFilter(), q.page(), q.version("resource_version"), q.boolean("watch")
	q.checkWatch(watch, version)
	if err := q.err(); err != nil {
		return err
	}
	if watch {
		return s.watchAuditEvents(c, filter, *version)
	}
	found, err := s.opt.Store.AuditEvents(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	if version, err = listVersion(version, found.Version); err != nil {
		return err
	}
	list := s.auditEvents(func(all []account.AuditEvent, l pageLinks) any { return auditList{all, l, *version} })
	return list.writePage(c, q, found.Events, found.More, url.Values{"resource_version": {version.String()}})
}

func (s *server) watchAuditEvents(c *call, f account.AuditFilter, v account.ResourceVersion) error {
	return s.stream(c, watchSource{
		subscribe: s.opt.Store.SubscribeAudit,
		next: func() ([]any, bool, error) {
			events, upTo, err := s.opt.Store.AuditEventsAfter(c.Context(), c.AccountID(), v, f, watchBatch)
			if err != nil {
				return nil, false, err
			}
			v = upTo
			lines := make([]any, 0, len(events))
			for i := range events {
				s.setAuditURIs(&events[i])
				lines = append(lines, &account.AuditWatchEvent{Type: account.Added,
					ResourceVersion: events[i].ResourceVersion,
					Event:           &events[i]})
			}
			return lines, len(events) == watchBatch, nil
		},
		bookmark: func() any { return &account.AuditWatchEvent{Type: account.Bookmark, ResourceVersion: v} },
	})
}

func (q *query) auditFilter() account.AuditFilter {
	f := account.AuditFilter{Type: account.AuditType(q.values.Get("type")), ObjectID: q.values.Get("object_id")}
	if q.values.Has("type") && !slices.Contains(account.AuditTypes(), f.Type) {
		q.reject("type", string(f.Type), "is no type of an event; docs/reference/api/events.md lists them")
	}
	if q.values.Has("object_id") && !positionPattern.MatchString(f.ObjectID) {
		q.reject("object_id", f.ObjectID, "must be an id")
	}
	return f
}

// objectPath returns the path of the list of the objects whose IDs have the prefix, nil when events
// are not about such objects.
func objectPath(prefix string) []string {
	paths := map[string][]string{
		account.PrefixEndpoint: {"endpoints"}, account.PrefixTunnelSession: {"tunnel_sessions"},
		account.PrefixOperator: {"kubernetes_operators"},
		account.PrefixAPIKey:   {"api_keys"}, account.PrefixCredential: {"credentials"},
		account.PrefixCluster: {"clusters"},
		account.PrefixUser:    {"app", "users"}, account.PrefixAppSession: {"app", "sessions"},
	}
	for _, kind := range account.BackendKinds() {
		paths[kind.IDPrefix()] = []string{"backends", string(kind)}
	}
	return paths[prefix]
}

// setAuditURIs sets the URIs of an event. An event outlives its object, so the object's URI may
// lead nowhere.
func (s *server) setAuditURIs(e *account.AuditEvent) {
	e.URI = s.uri("events", e.ID)
	s.setPrincipalURI(e.Principal)
	if e.Object == nil {
		return
	}
	prefix, _, _ := strings.Cut(e.Object.ID, "-")
	if path := objectPath(prefix); path != nil {
		e.Object.URI = s.uri(append(slices.Clone(path), e.Object.ID)...)
	}
}
