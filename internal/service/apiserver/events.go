// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// eventHandlers serve the log of what happened and the watch of it.
type eventHandlers struct {
	store   account.AuditLog
	uris    uris
	watches *watches
}

func (h *eventHandlers) kind() kind[account.AuditEvent] {
	return newKind(func(e *account.AuditEvent) string { return e.ID }, h.uris.setEvent)
}

func (h *eventHandlers) list(c *call) error {
	q := c.parseQuery()
	filter, page, version, watch := q.auditFilter(), q.page(), q.version("resource_version"), q.boolean("watch")
	q.checkWatch(watch, version)
	if err := q.err(); err != nil {
		return err
	}
	if watch {
		return h.watches.stream(c, &eventWatch{h, filter, *version})
	}
	found, err := h.store.AuditEvents(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	if version, err = listVersion(version, found.Version); err != nil {
		return err
	}
	return h.kind().writePage(c, q, found.Events, found.More, url.Values{"resource_version": {version.String()}},
		resource.Version{ResourceVersion: *version})
}

// eventWatch is the account's log of events from a version on. It implements watchedLog.
type eventWatch struct {
	*eventHandlers
	filter  account.AuditFilter
	version account.ResourceVersion
}

func (w *eventWatch) subscribe(accountID string) (<-chan struct{}, func()) {
	return w.store.SubscribeAudit(accountID)
}

func (w *eventWatch) next(c *call) ([]any, bool, error) {
	events, upTo, err := w.store.AuditEventsAfter(c.Context(), c.AccountID(), w.version, w.filter, watchBatch)
	if err != nil {
		return nil, false, err
	}
	w.version = upTo
	lines := make([]any, 0, len(events))
	for i := range events {
		w.uris.setEvent(&events[i])
		lines = append(lines, &account.AuditWatchEvent{Type: account.Added,
			ResourceVersion: events[i].ResourceVersion, Event: &events[i]})
	}
	return lines, len(events) == watchBatch, nil
}

func (w *eventWatch) bookmark() any {
	return &account.AuditWatchEvent{Type: account.Bookmark, ResourceVersion: w.version}
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
