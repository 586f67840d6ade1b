// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestPromotion_BeginsEpoch holds that no version number means two things when PostgreSQL fails
// over to an asynchronous standby: the numbers of writes that were lost with the primary are of an
// epoch that has passed.
func TestPromotion_BeginsEpoch(t *testing.T) {
	t.Parallel()
	primary, standby, databaseURL := startPrimaryAndStandby(t)
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DatabaseURL = databaseURL
		return store.Open(t.Context(), opt)
	})
	session := f.Session()
	f.Bind(session, "http://kept.demo")
	kept := f.List()
	caughtUp(t, primary, databaseURL)
	storetest.Must(t, standby.CutReplication(t.Context()))
	f.Bind(session, "http://lost.demo")
	lost := f.List()

	storetest.Must(t, primary.Crash())
	storetest.Must(t, standby.Promote(t.Context()))
	wake, cancel := f.Store.Subscribe(f.AccountID)
	defer cancel()
	var again *account.BindResult
	wait.Until(t, "a write on the new primary", func() bool {
		var err error
		again, err = f.Store.Bind(t.Context(), f.Request(session, "http://again.demo"))
		return err == nil
	})
	<-wake // although the numbers may look like those before
	if v := again.Endpoint.ResourceVersion; v.Epoch <= kept.Version.Epoch || v.Seq != lost.Version.Seq {
		t.Errorf("version %s after %s, want a later epoch and the same number", v, lost.Version)
	}
	for _, v := range []account.ResourceVersion{kept.Version, lost.Version} {
		_, _, err := f.Store.EndpointEvents(t.Context(), f.AccountID, v, account.EndpointFilter{}, 0)
		storetest.MustCode(t, err, account.CodeGone)
	}
	list := f.List()
	storetest.Equal(t, "endpoints", len(list.Endpoints), 2)
	f.Bind(session, "http://more.demo")
	f.Expect(list.Version, account.Added)
	storetest.Equal(t, "epoch of what follows", f.List().Version.Epoch, list.Version.Epoch)
}

// startPrimaryAndStandby starts a PostgreSQL with an asynchronous standby, and returns the URL of a
// database that names both.
func startPrimaryAndStandby(t *testing.T) (primary, standby *postgrestest.Server, databaseURL string) {
	t.Helper()
	primary, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { storetest.Must(t, primary.Remove()) })
	databaseURL = primary.URL(t)
	standby, err = primary.Standby()
	storetest.Must(t, err)
	t.Cleanup(func() { storetest.Must(t, standby.Remove()) })
	databaseURL, err = primary.WithStandby(databaseURL, standby)
	storetest.Must(t, err)
	return primary, standby, databaseURL
}

// caughtUp waits until the standby of the primary has what the primary has written.
func caughtUp(t *testing.T, primary *postgrestest.Server, databaseURL string) {
	t.Helper()
	storetest.Must(t, primary.Exec(t.Context(), databaseURL, `DO $$ BEGIN
		WHILE EXISTS (SELECT 1 FROM pg_stat_replication WHERE replay_lsn IS DISTINCT FROM pg_current_wal_lsn())
			OR NOT EXISTS (SELECT 1 FROM pg_stat_replication)
		LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$`))
}
