// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
)

// Source reads the account's kubernetes-bound endpoints, and what clusters export.
type Source interface {
	// List returns all of them, or an error: a Snapshot is complete.
	List(ctx context.Context) (Snapshot, error)
	// Watch streams the events after the version. The error has account.CodeGone if the version is
	// no longer available, and is apiclient.ErrWatchUnsupported if the server has no watches.
	Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error)
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

// Admitter is the endpoint selector (internal/selector).
type Admitter interface {
	Matches(e *account.Endpoint, u account.EndpointURL) (bool, error)
}
