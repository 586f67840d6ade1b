// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// watchRetryInterval is the pause between two attempts to watch.
const watchRetryInterval = time.Second

// Endpoints keeps and watches the account's endpoints. Agents make and delete their own; Create,
// Update and Delete are for those of type cloud.
type Endpoints struct {
	Collection[Endpoint, EndpointFields]

	log *slog.Logger
}

// EventType is what happened to an endpoint.
type EventType string

// The types of events.
const (
	EventAdded    EventType = "ADDED"
	EventModified EventType = "MODIFIED"
	EventDeleted  EventType = "DELETED" // the endpoint is as it was last
	EventSynced   EventType = "SYNCED"  // every endpoint that there was has been yielded; Endpoint is nil
)

// EndpointEvent is a change of an endpoint.
type EndpointEvent struct {
	Type     EventType
	Endpoint *Endpoint
}

// Watch yields the endpoints that there are as EventAdded, then EventSynced, then every change, until
// ctx is done. An outage of the service is waited out; afterwards the changes meanwhile are yielded,
// each endpoint's last one at least. An error that another attempt does not mend, such as a deleted
// API key, is the last pair. filter may have binding, type and url.
func (e Endpoints) Watch(ctx context.Context, filter Filter) iter.Seq2[EndpointEvent, error] {
	return func(yield func(EndpointEvent, error) bool) {
		w := endpointWatch{api: e.of.api, known: map[string]*Endpoint{}}
		err := w.setFilter(filter)
		for err == nil {
			switch err = w.run(ctx, yield); {
			case ctx.Err() != nil, errors.Is(err, errStopped):
				return
			case account.CodeOf(err) == account.CodeGone:
				w.version = account.ResourceVersion{} // list again
			case !apiclient.IsTemporary(err):
				continue
			}
			e.log.Debug("watching endpoints", "error", err)
			err = nil
			timer.Sleep(ctx, watchRetryInterval)
		}
		yield(EndpointEvent{}, publicError(err))
	}
}

// errStopped ends a watch whose caller wants no more.
var errStopped = errors.New("no more events are wanted")

// endpointWatch is what a watch has yielded.
type endpointWatch struct {
	api     *apiclient.Client
	filter  account.EndpointFilter
	version account.ResourceVersion // the zero version: list first
	known   map[string]*Endpoint    // by id
}

func (w *endpointWatch) setFilter(filter Filter) error {
	for name, value := range filter {
		switch name {
		case "binding":
			w.filter.Bindings = strings.Split(value, ",")
		case "type":
			w.filter.Type = value
		case "url":
			w.filter.URL = value
		default:
			return account.Invalid("filter", name, "a watch takes binding, type and url")
		}
	}
	return nil
}

// run lists if needed, then watches until the watch ends.
func (w *endpointWatch) run(ctx context.Context, yield func(EndpointEvent, error) bool) error {
	if w.version == (account.ResourceVersion{}) {
		if err := w.list(ctx, yield); err != nil {
			return err
		}
	}
	watch, err := w.api.WatchEndpoints(ctx, w.filter, w.version)
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		event, err := watch.Next()
		if err != nil {
			return err
		}
		if event.Type != account.Bookmark {
			if err := w.emit(yield, EventType(event.Type), event.Endpoint); err != nil {
				return err
			}
		}
		w.version = event.ResourceVersion
	}
}

// list yields how the account differs from what is known.
func (w *endpointWatch) list(ctx context.Context, yield func(EndpointEvent, error) bool) error {
	list, err := w.api.ListEndpoints(ctx, w.filter)
	if err != nil {
		return err
	}
	gone := maps.Clone(w.known)
	for i := len(list.Endpoints) - 1; i >= 0; i-- { // oldest first
		e := &list.Endpoints[i]
		before := gone[e.ID]
		delete(gone, e.ID)
		switch {
		case before == nil:
			err = w.emit(yield, EventAdded, e)
		case before.ResourceVersion != e.ResourceVersion.String():
			err = w.emit(yield, EventModified, e)
		}
		if err != nil {
			return err
		}
	}
	for id, e := range gone {
		delete(w.known, id)
		if !yield(EndpointEvent{EventDeleted, e}, nil) {
			return errStopped
		}
	}
	if !yield(EndpointEvent{Type: EventSynced}, nil) {
		return errStopped
	}
	w.version = list.Version
	return nil
}

// emit yields an event.
func (w *endpointWatch) emit(yield func(EndpointEvent, error) bool, kind EventType, from *account.Endpoint) error {
	e := endpointOf(from)
	if w.known[e.ID] = e; kind == EventDeleted {
		delete(w.known, e.ID)
	}
	if !yield(EndpointEvent{kind, e}, nil) {
		return errStopped
	}
	return nil
}

func endpointOf(e *account.Endpoint) *Endpoint {
	to := &Endpoint{Object: Object{ID: e.ID, Description: e.Description, Metadata: e.Metadata, CreatedAt: e.CreatedAt},
		URL: e.URL, Host: e.Host, Port: e.Port, Type: e.Type, Bindings: e.Bindings, Name: e.Name, Status: e.Status,
		OfflineSince: e.OfflineSince, UpdatedAt: e.UpdatedAt, PoolingEnabled: e.PoolingEnabled,
		UpstreamURL: e.UpstreamURL, BackendID: e.BackendID, TrafficPolicy: e.TrafficPolicy,
		ResourceVersion: e.ResourceVersion.String()}
	if e.TunnelSession != nil {
		to.TunnelSession = &Ref{ID: e.TunnelSession.ID}
	}
	return to
}
