// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ErrWatchUnsupported is what Source.Watch returns when the server knows no watch.
var ErrWatchUnsupported = errors.New("this server knows no watch")

// Source reads the account's kubernetes-bound endpoints.
type Source interface {
	// List returns all of them, or an error: a snapshot is complete.
	List(ctx context.Context) (Snapshot, error)
	// Watch streams what happened after the version. The error has account.CodeGone when that is no
	// longer known.
	Watch(ctx context.Context, after account.ResourceVersion) (Watcher, error)
}

// Snapshot is a complete list.
type Snapshot struct {
	Endpoints          []account.Endpoint
	Version            account.ResourceVersion
	AccountID, StoreID string
}

// Watcher is a running watch. Next blocks until there is an event, the watch breaks, was silent for
// too long, or its context ends; the error is io.EOF where the service ended the watch.
type Watcher interface {
	Next() (account.EndpointEvent, error)
	Close()
}

// Admitter is the endpoint selector (internal/selector).
type Admitter interface {
	Matches(e *account.Endpoint, u account.EndpointURL) (bool, error)
}
