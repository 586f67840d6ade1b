// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ErrWatchUnsupported is returned by Source.Watch if the server does not support watches.
var ErrWatchUnsupported = errors.New("this server does not support watches")

// Source reads the account's kubernetes-bound endpoints, and what clusters export.
type Source interface {
	// List returns all of them, or an error: a Snapshot is complete.
	List(ctx context.Context) (Snapshot, error)
	// Watch streams the events after the version. The error has account.CodeGone if the version is
	// no longer available.
	Watch(ctx context.Context, after account.ResourceVersion) (Watcher, error)
}

// Snapshot is a complete list.
type Snapshot struct {
	Endpoints          []account.Endpoint
	Version            account.ResourceVersion
	AccountID, StoreID string
	// WithoutClusterset reports that the server does not know account.BindingClusterset: what
	// clusters export is not in the list.
	WithoutClusterset bool
}

// Watcher is a running watch. Next blocks until there is an event, the watch breaks or times out,
// or its context ends; the error is io.EOF if the service ended the watch.
type Watcher interface {
	Next() (account.EndpointEvent, error)
	Close()
}

// Admitter is the endpoint selector (internal/selector).
type Admitter interface {
	Matches(e *account.Endpoint, u account.EndpointURL) (bool, error)
}
