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
)

// watchPause is how long a watch waits before it tries the service again.
const watchPause = 2 * time.Second

// watch prints the endpoints and then every change, across outages, until ctx is done.
func (a *apiCall) watch(ctx context.Context, api *apiclient.Client, f account.EndpointFilter) error {
	if a.output == "table" {
		if _, err := fmt.Fprintf(a.console.out, eventRow, "EVENT", "ID", "STATUS", "URL"); err != nil {
			return err
		}
	}
	var at account.ResourceVersion
	listed, down := false, false
	for ctx.Err() == nil { // Ctrl-C is how a watch ends
		var err error
		if !listed {
			at, err = a.watchList(ctx, api, f)
			listed = err == nil
		}
		if listed {
			at, err = a.watchFrom(ctx, api, f, at, &down)
		}
		switch {
		case ctx.Err() != nil:
			continue
		case account.CodeOf(err) == account.CodeGone:
			listed = false
			continue
		case !passing(err):
			return err
		case !down && !errors.Is(err, io.EOF):
			_, _ = fmt.Fprintf(a.console.err, "%s; trying again\n", screen.Clean(err.Error()))
		}
		down = true
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
	return nil
}

// passing says whether trying again may help.
func passing(err error) bool {
	switch account.CodeOf(err) {
	case account.CodeUnreachable, account.CodeBadAnswer, account.CodeUnavailable, account.CodeTooMany:
		return true
	}
	return false
}

// watchList prints what there is as ADDED, oldest first.
func (a *apiCall) watchList(ctx context.Context, api *apiclient.Client, f account.EndpointFilter) (account.ResourceVersion, error) {
	list, err := api.ListEndpoints(ctx, f)
	if err != nil {
		return account.ResourceVersion{}, err
	}
	for i := len(list.Endpoints) - 1; i >= 0; i-- {
		e := &list.Endpoints[i]
		if err := a.printEvent(account.EndpointEvent{Type: account.Added, ResourceVersion: e.ResourceVersion, Endpoint: e}); err != nil {
			return account.ResourceVersion{}, err
		}
	}
	return list.Version, nil
}

// watchFrom prints changes until the watch ends, and returns where it got to.
func (a *apiCall) watchFrom(ctx context.Context, api *apiclient.Client, f account.EndpointFilter, at account.ResourceVersion, down *bool) (account.ResourceVersion, error) {
	w, err := api.WatchEndpoints(ctx, f, at)
	if errors.Is(err, apiclient.ErrWatchUnsupported) {
		return at, fmt.Errorf("the service offers no watch: %w", err)
	}
	if err != nil {
		return at, err
	}
	defer w.Close()
	for *down = false; ; {
		e, err := w.Next()
		if err != nil {
			return at, err
		}
		at = e.ResourceVersion
		if e.Type == account.Bookmark {
			continue
		}
		if err := a.printEvent(e); err != nil {
			return at, err
		}
	}
}

const eventRow = "%-9s %-30s %-8s %s\n"

func (a *apiCall) printEvent(e account.EndpointEvent) error {
	if a.output == "table" {
		_, err := fmt.Fprintf(a.console.out, eventRow, e.Type, screen.Clean(e.Endpoint.ID), screen.Clean(e.Endpoint.Status), screen.Clean(e.Endpoint.URL))
		return err
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	if a.output == "json" { // one line each
		_, err = fmt.Fprintf(a.console.out, "%s\n", line)
		return err
	}
	if _, err := fmt.Fprintln(a.console.out, "---"); err != nil {
		return err
	}
	return printYAML(a.console.out, line)
}
