// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestOpen_AcceptsRelativeDataDirectory is `--data-dir data`, as people type it: every command has
// to take it.
func TestOpen_AcceptsRelativeDataDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := store.Open(t.Context(), store.Options{DataDir: "data"})
	storetest.Must(t, err)
	storetest.Must(t, store.Backup(t.Context(), "data", "backup.db"))
	storetest.Must(t, s.Close())
	restored, err := store.Restore(t.Context(), store.Options{DataDir: "data"}, "backup.db")
	storetest.Must(t, err)
	storetest.Equal(t, "kept in", filepath.Base(filepath.Dir(restored.ReplacedFile)), "data")
	s, err = store.Open(t.Context(), store.Options{DataDir: filepath.Join("data", "..", "data")})
	storetest.Must(t, err)
	storetest.Must(t, s.Close())
}
