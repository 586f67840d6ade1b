// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestPing_ReportsFullDisk holds that Ping tells within a second that a disk is full, and that it
// is not any more.
func TestPing_ReportsFullDisk(t *testing.T) {
	t.Parallel()
	storetest.OnSmallDisk(t, 6, func(d *storetest.SmallDisk) {
		now := time.Now()
		opt := store.Options{DataDir: d.Dir, Clock: func() time.Time { return now }}
		s, err := store.Open(t.Context(), opt)
		storetest.Must(t, err)
		storetest.Must(t, s.Ping(t.Context()))
		d.Fill()
		now = now.Add(time.Second)
		err = s.Ping(t.Context())
		storetest.MustCode(t, err, account.CodeUnavailable)
		if !sqldb.DiskFull(err) || !strings.HasPrefix(err.Error(), "the disk that holds the store is full; ") {
			t.Errorf("a full disk: %v", err)
		}
		_, err = s.CreateAccount(t.Context(), "none")
		storetest.MustCode(t, err, account.CodeUnavailable)
		d.Free()
		now = now.Add(time.Second)
		storetest.Must(t, s.Ping(t.Context()))
		_, err = s.CreateAccount(t.Context(), "one")
		storetest.Must(t, err)
		storetest.Must(t, s.Close())

		d.Fill()
		if _, err = store.Open(t.Context(), opt); !sqldb.DiskFull(err) || !strings.Contains(err.Error(), d.Dir) {
			t.Errorf("opening on a full disk: %v", err)
		}
	})
}
