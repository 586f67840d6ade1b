// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestSweep_DropsClaimsOfVanishedClusters holds that clusters which come and go leave nothing.
func TestSweep_DropsClaimsOfVanishedClusters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(o store.Options) (*store.Store, error) {
		o.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), o)
	})
	claims := func() int {
		n, err := f.Store.ClusterIDs(t.Context())
		storetest.Must(t, err)
		return n
	}
	gone := f.MakeCloud(f.Export("hello", "a", "one"))
	f.MakeCloud(f.Export("hello", "b", "two"))
	storetest.Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, gone.ID))
	f.Sweep(store.DefaultOwnedGrace - time.Hour)
	storetest.Equal(t, "claims within a week", claims(), 2)
	f.Sweep(time.Hour)
	storetest.Equal(t, "claims after a week", claims(), 1)
	storetest.Equal(t, "export of the other cluster", len(f.List().Endpoints), 0)
	f.Sweep(time.Hour)
	storetest.Equal(t, "claims an hour later", claims(), 0)
}
