// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

// endpointHandlers serve endpoints and the watch of them.
type endpointHandlers struct {
	store interface {
		account.Endpoints
		account.CloudEndpoints
		account.EventLog
		account.ClusterPinner
	}
	uris     uris
	redactor httpkit.Redactor
	checker  account.PolicyChecker // checker is nil where the server runs no policies.
	meter    httpkit.Meter         // meter is nil where nothing is counted.
	watches  *watches
}

func (h *endpointHandlers) kind() kind[account.Endpoint] {
	return newKind(func(e *account.Endpoint) string { return e.ID }, h.prepare)
}

func (h *endpointHandlers) list(c *call) error {
	q := c.parseQuery()
	filter, page, version, watch := q.endpointFilter(), q.page(), q.version("resource_version"), q.boolean("watch")
	q.checkWatch(watch, version)
	if watch && filter.OwnerCluster != "" {
		q.reject("owner_cluster", filter.OwnerCluster, "goes with a list, not with watch=true")
	}
	if err := q.err(); err != nil {
		return err
	}
	filter, err := c.listFilter(filter, watch)
	if err != nil {
		return err
	}
	if watch {
		return h.watches.stream(c, &endpointWatch{endpointHandlers: h, filter: filter, version: *version})
	}
	found, err := h.store.ListEndpoints(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	if version, err = listVersion(version, found.Version); err != nil {
		return err
	}
	return h.kind().writePage(c, q, found.Endpoints, found.More, url.Values{"resource_version": {version.String()}},
		resource.Version{ResourceVersion: *version},
		resource.Origin{AccountID: c.AccountID(), StoreID: found.StoreID})
}

// listVersion returns the version of every page of a list: that of the first page, which the
// addresses of later ones have as a parameter.
func listVersion(given *account.ResourceVersion, now account.ResourceVersion) (*account.ResourceVersion, error) {
	switch {
	case given == nil:
		return &now, nil
	case given.Epoch != now.Epoch || given.Seq > now.Seq:
		return nil, account.Errorf(account.CodeGone,
			"resource_version %s is not of this store; list again from the first page", given)
	}
	return given, nil
}

// prepare sets the URIs of an endpoint and redacts the secrets of its policy.
func (h *endpointHandlers) prepare(e *account.Endpoint) {
	h.uris.setEndpoint(e)
	if e.TrafficPolicy != "" {
		e.TrafficPolicy = redact.Text(e.TrafficPolicy, h.redactionMark(e.AccountID))
	}
}

// endpointWatch is the account's log of endpoints from a version on. It implements watchedLog.
type endpointWatch struct {
	*endpointHandlers
	filter  account.EndpointFilter
	version account.ResourceVersion
	waited  bool // what next returns was committed while the watch waited for it
}

func (w *endpointWatch) subscribe(accountID string) (<-chan struct{}, func()) {
	return w.store.Subscribe(accountID)
}

func (w *endpointWatch) next(c *call) ([]any, bool, error) {
	events, upTo, err := w.store.EndpointEvents(c.Context(), c.AccountID(), w.version, w.filter, watchBatch)
	if err != nil {
		return nil, false, err
	}
	w.version = upTo
	lines := make([]any, 0, len(events))
	for i := range events {
		e := &events[i]
		w.uris.setEndpoint(e.Endpoint)
		lines = append(lines, e)
		if w.waited && w.meter != nil && e.Type == account.Added {
			w.meter.ObserveWatch(c.now().Sub(e.Endpoint.CreatedAt))
		}
	}
	w.waited = len(events) < watchBatch
	return lines, !w.waited, nil
}

func (w *endpointWatch) bookmark() any {
	return &account.EndpointEvent{Type: account.Bookmark, ResourceVersion: w.version}
}
