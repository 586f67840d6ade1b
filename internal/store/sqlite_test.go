// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/store"
	"github.com/fairlead-dev/fairlead/internal/store/storetest"
)

func TestSQLiteConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		dir := t.TempDir()
		return func(opt store.Options) (*store.Store, error) {
			opt.DataDir = dir
			return store.Open(t.Context(), opt)
		}
	})
}
