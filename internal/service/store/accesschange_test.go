// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// confirmOne confirms the next change of a command as the server.
func confirmOne(t *testing.T, s *store.Store, accountID string) {
	t.Helper()
	var pending []membership.AccessChange
	wait.Until(t, "a change of a command", func() bool {
		var err error
		pending, err = s.PendingAccessChanges(context.WithoutCancel(t.Context()))
		storetest.Must(t, err)
		return len(pending) > 0
	})
	storetest.Equal(t, "account", pending[0].AccountID, accountID)
	storetest.Must(t, s.ConfirmAccessChange(t.Context(), pending[0].ID))
}

// TestAwaitServers_WaitsForEachReplica holds that a command waits until all replicas have confirmed
// its change, or until a dead one would have been removed.
func TestAwaitServers_WaitsForEachReplica(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	for name, c := range map[string]struct {
		patience  time.Duration
		confirmed []*replica
		want      membership.Applied
	}{
		"one does not confirm": {5 * time.Second, []*replica{one},
			membership.Applied{Servers: 1, Missing: []string{"two"}}},
		"both confirm": {time.Hour, []*replica{one, two}, membership.Applied{Servers: 2}},
	} {
		command := openCommand(t, opt, c.patience)
		result := make(chan membership.Applied, 1)
		go func() {
			applied, err := command.AwaitServers(t.Context(), f.AccountID)
			if err != nil {
				t.Error(err)
			}
			result <- applied
		}()
		for _, r := range c.confirmed {
			confirmOne(t, r.Store, f.AccountID)
		}
		if diff := cmp.Diff(c.want, <-result); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		for _, r := range []*replica{one, two} {
			left, err := r.PendingAccessChanges(t.Context())
			storetest.Must(t, err)
			storetest.Equal(t, name+": changes left", len(left), 0)
		}
	}
	one.stop()
	two.stop()
	command := openCommand(t, opt, 10*time.Millisecond)
	wait.Until(t, "the locks of the stopped servers to end with their connections", func() bool {
		applied, err := command.AwaitServers(t.Context(), f.AccountID)
		storetest.Must(t, err)
		return applied.Servers == 0 && len(applied.Missing) == 0
	})
}

// openCommand opens the store as a command does that waits so long for a dead server.
func openCommand(t *testing.T, opt store.Options, patience time.Duration) *store.Store {
	t.Helper()
	opt.BeatTimes = membership.BeatTimes{Interval: testBeat, Timeout: time.Minute, FenceAfter: patience}
	s, err := store.Open(t.Context(), opt)
	storetest.Must(t, err)
	t.Cleanup(func() { storetest.Must(t, s.Close()) })
	return s
}

// TestConfirmAccessChange_RemovesAbandoned holds that the change of a command that was killed does
// not stay for ever.
func TestConfirmAccessChange_RemovesAbandoned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(o store.Options) (*store.Store, error) {
		o.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), o)
	})
	execute(t, dir, `INSERT INTO access_changes (id, account_id, at)
		SELECT 'killed', id, 1 FROM accounts UNION ALL SELECT 'next', id, 2 FROM accounts`)
	storetest.Must(t, f.Store.ConfirmAccessChange(t.Context(), "next"))
	left, err := f.Store.PendingAccessChanges(t.Context())
	storetest.Must(t, err)
	storetest.Equal(t, "changes left", len(left), 0)
}
