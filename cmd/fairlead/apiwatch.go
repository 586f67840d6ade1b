// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// watchRetryInterval is the pause between two attempts to reach the service.
const watchRetryInterval = 2 * time.Second

// follower prints the objects of a resource, then every change.
type follower interface {
	list(ctx context.Context) error // prints the objects
	// follow prints changes after list until the watch ends; it calls up when the watch is open.
	follow(ctx context.Context, up func()) error
}

// watch follows until ctx is done and survives outages of the service.
func (a *apiCall) watch(ctx context.Context, f follower) error {
	listed, down := false, false
	for ctx.Err() == nil { // Ctrl-C is how a watch ends
		var err error
		if !listed {
			err = f.list(ctx)
			listed = err == nil
		}
		if listed {
			err = f.follow(ctx, func() { down = false })
		}
		switch {
		case ctx.Err() != nil:
			continue
		case account.CodeOf(err) == account.CodeGone:
			listed = false
			continue
		case !apiclient.IsTemporary(err):
			return err
		case !down && !errors.Is(err, io.EOF):
			_, _ = fmt.Fprintf(a.console.err, "%s; trying again\n", screen.Escape(err.Error()))
		}
		down = true
		timer.Sleep(ctx, watchRetryInterval)
	}
	return nil
}

// endpointFollower follows the endpoints of the account.
type endpointFollower struct {
	*apiCall
	api    *apiclient.Client
	filter account.EndpointFilter
	at     account.ResourceVersion
}

// list prints the endpoints as ADDED, oldest first.
func (f *endpointFollower) list(ctx context.Context) error {
	list, err := f.api.ListEndpoints(ctx, f.filter)
	if err != nil {
		return err
	}
	for i := len(list.Endpoints) - 1; i >= 0; i-- {
		e := &list.Endpoints[i]
		if err := f.printEvent(account.EndpointEvent{Type: account.Added, ResourceVersion: e.ResourceVersion,
			Endpoint: e}); err != nil {
			return err
		}
	}
	f.at = list.Version
	return nil
}

func (f *endpointFollower) follow(ctx context.Context, up func()) error {
	w, err := f.api.WatchEndpoints(ctx, f.filter, f.at)
	if errors.Is(err, apiclient.ErrWatchUnsupported) {
		return fmt.Errorf("the service offers no watch: %w", err)
	}
	if err != nil {
		return err
	}
	up()
	return forEach(w, func(e account.EndpointEvent) error {
		f.at = e.ResourceVersion
		if e.Type == account.Bookmark {
			return nil
		}
		return f.printEvent(e)
	})
}

// forEach calls do with every event of a watch until either fails, and closes the watch.
func forEach[E any](w interface {
	Next() (E, error)
	Close()
}, do func(E) error) error {
	defer w.Close()
	for {
		e, err := w.Next()
		if err == nil {
			err = do(e)
		}
		if err != nil {
			return err
		}
	}
}

const eventRow = "%-9s %-30s %-8s %s\n"

func (a *apiCall) printEvent(e account.EndpointEvent) error {
	if a.isTable() {
		_, err := fmt.Fprintf(a.console.out, eventRow, e.Type, screen.Escape(e.Endpoint.ID),
			screen.Escape(e.Endpoint.Status),
			screen.Escape(e.Endpoint.URL))
		return err
	}
	var printed any = e
	if a.template != nil || a.format == "name" {
		printed = e.Endpoint
	}
	line, err := json.Marshal(printed)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	return a.printLine(line)
}

// printLine prints an event as JSON, one a line, as a YAML document, or in another format.
func (a *apiCall) printLine(line []byte) error {
	switch a.format {
	case "json": // one line each
		_, err := fmt.Fprintf(a.console.out, "%s\n", line)
		return err
	case "yaml":
		if _, err := fmt.Fprintln(a.console.out, "---"); err != nil {
			return err
		}
	}
	return a.printRaw(line)
}
