// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/store"
	"github.com/fairlead-dev/fairlead/internal/store/postgrestest"
	"github.com/fairlead-dev/fairlead/internal/store/storetest"
)

// postgres is the server of this package's tests.
var postgres postgrestest.Shared

func TestPostgresConforms(t *testing.T) {
	server := postgres.Server(t)
	storetest.Run(t, func(t *testing.T) storetest.Open {
		databaseURL := server.URL(t)
		return func(opt store.Options) (*store.Store, error) {
			opt.DatabaseURL = databaseURL
			return store.Open(context.WithoutCancel(t.Context()), opt)
		}
	})
}
