// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type auditList struct {
	Events          []account.AuditEvent    `json:"events"`
	URI             string                  `json:"uri"`
	NextPageURI     *string                 `json:"next_page_uri"`
	ResourceVersion account.ResourceVersion `json:"resource_version"`
}

func (s *server) listAudit(c *call) error {
	q := c.parseQuery("type", "object_id", "before_id", "limit", "watch", "resource_version")
	filter, page, version, watch := q.auditFilter(), q.page(), q.version("resource_version"), q.flag("watch")
	q.watchable(watch, version)
	if err := q.err(); err != nil {
		return err
	}
	if watch {
		return s.watchAudit(c, filter, *version)
	}
	found, err := s.opt.Audit.AuditEvents(c.r.Context(), c.accountID(), filter, page)
	if err != nil {
		return err
	}
	if version, err = listVersion(version, found.Version); err != nil {
		return err
	}
	list := auditList{Events: found.Events, URI: s.uri("events"), ResourceVersion: *version}
	for i := range list.Events {
		s.fillAudit(&list.Events[i])
	}
	if n := len(list.Events); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Events[n-1].ID, q,
			url.Values{"resource_version": {version.String()}})
	}
	return c.writeJSON(http.StatusOK, list)
}

func (s *server) getAudit(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	found, err := s.opt.Audit.AuditEvent(c.r.Context(), c.accountID(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	s.fillAudit(found)
	return c.writeJSON(http.StatusOK, found)
}

func (s *server) watchAudit(c *call, f account.AuditFilter, v account.ResourceVersion) error {
	return s.stream(c, watched{
		subscribe: s.opt.Audit.SubscribeAudit,
		next: func() ([]any, bool, error) {
			events, upTo, err := s.opt.Audit.AuditEventsAfter(c.r.Context(), c.accountID(), v, f, watchBatch)
			if err != nil {
				return nil, false, err
			}
			v = upTo
			lines := make([]any, 0, len(events))
			for i := range events {
				s.fillAudit(&events[i])
				lines = append(lines, &account.AuditWatchEvent{Type: account.Added, ResourceVersion: events[i].ResourceVersion,
					Event: &events[i]})
			}
			return lines, len(events) == watchBatch, nil
		},
		bookmark: func() any { return &account.AuditWatchEvent{Type: account.Bookmark, ResourceVersion: v} },
	})
}

func (q *query) auditFilter() account.AuditFilter {
	f := account.AuditFilter{Type: account.AuditType(q.values.Get("type")), ObjectID: q.values.Get("object_id")}
	if q.values.Has("type") && !slices.Contains(account.AuditTypes(), f.Type) {
		q.bad("type", string(f.Type), "is no type of an event; docs/api.md lists them")
	}
	if q.values.Has("object_id") && !positionPattern.MatchString(f.ObjectID) {
		q.bad("object_id", f.ObjectID, "must be an id")
	}
	return f
}

// audited are the routes of the objects that events are about, by the prefix of their ids.
func audited(prefix string) []string {
	routes := map[string][]string{
		account.PrefixEndpoint: {"endpoints"}, account.PrefixTunnelSession: {"tunnel_sessions"},
		account.PrefixOperator: {"kubernetes_operators"},
		account.PrefixAPIKey:   {"api_keys"}, account.PrefixCredential: {"credentials"},
		account.PrefixUser: {"app", "users"}, account.PrefixAppSession: {"app", "sessions"},
	}
	for _, kind := range account.BackendKinds() {
		routes[kind.IDPrefix()] = []string{"backends", string(kind)}
	}
	return routes[prefix]
}

// fillAudit sets the URIs. An event outlives its object, so its URI may lead nowhere.
func (s *server) fillAudit(e *account.AuditEvent) {
	e.URI = s.uri("events", e.ID)
	s.fillPrincipal(e.Principal)
	if e.Object == nil {
		return
	}
	prefix, _, _ := strings.Cut(e.Object.ID, "-")
	if route := audited(prefix); route != nil {
		e.Object.URI = s.uri(append(slices.Clone(route), e.Object.ID)...)
	}
}
