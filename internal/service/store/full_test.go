// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestWrite_ReportsFullDisk: writes are unavailable and leave no half, reads go on, and all is well
// when there is room again.
func TestWrite_ReportsFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), opt)
	})
	session := f.Session()
	storetest.Must(t, storetest.SetMaxPages(t.Context(), f.Store, 0))
	bound := 0
	for ; ; bound++ {
		r := f.Request(session, fmt.Sprintf("http://e%d.demo", bound))
		r.Metadata = strings.Repeat("x", account.MaxMetadata)
		if _, err := f.Store.Bind(t.Context(), r); err != nil {
			storetest.MustCode(t, err, account.CodeUnavailable)
			break
		}
	}
	page := f.List()
	storetest.Equal(t, "endpoints", len(page.Endpoints), bound)
	sameAsFolded(t, readLog(t, f.Store, f.AccountID, page.Version), page.Endpoints)
	storetest.MustCode(t, f.Store.Ping(t.Context()), account.CodeUnavailable)
	storetest.Must(t, storetest.SetMaxPages(t.Context(), f.Store, 1<<30))
	storetest.MustCode(t, f.Store.Ping(t.Context()), account.CodeUnavailable) // within probeEvery of the last write
	f.Clock.Step(time.Second)
	storetest.Must(t, f.Store.Ping(t.Context()))
	f.Bind(session, "http://after.demo")
	page = f.List()
	sameAsFolded(t, readLog(t, f.Store, f.AccountID, page.Version), page.Endpoints)
}
