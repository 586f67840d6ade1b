// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestReplicas_HaveOneBaseURL holds that a replica has the base URL of those that live, and that
// the rows of dead ones refuse none.
func TestReplicas_HaveOneBaseURL(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	other := func(o *store.Options) { o.Replica.BaseURL = "https://other.example.net" }
	one := startReplica(t, opt.DatabaseURL, "one")
	lost := one.bind(f, "http://lost.demo")
	_, err := tryReplica(t, opt.DatabaseURL, "two", other)
	storetest.MustCode(t, err, account.CodeInvalid)
	for _, want := range []string{"--base-url", "https://other.example.net", testBaseURL, "server one",
		"stop the others"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal %q lacks %q", err, want)
		}
	}
	storetest.Equal(t, "replicas", one.ids(), "one")
	one.stop() // as if it were killed: its row stays
	two, err := tryReplica(t, opt.DatabaseURL, "two", other)
	storetest.Must(t, err)
	storetest.Equal(t, "replicas", two.ids(), "two")
	storetest.Equal(t, "endpoint of the dead one", f.Endpoint(lost.ID).Status, account.StatusOffline)
}

// TestReplicas_NeedTheDatabasesTime holds that a replica does not start with a clock that is more
// than a second off.
func TestReplicas_NeedTheDatabasesTime(t *testing.T) {
	t.Parallel()
	_, opt := postgresFixture(t, postgres.Server(t).URL(t))
	by := func(d time.Duration) func(*store.Options) {
		return func(o *store.Options) { o.Clock = func() time.Time { return time.Now().Add(d) } }
	}
	for offset, want := range map[time.Duration]string{
		2 * time.Second:  "ahead of the database's",
		-2 * time.Second: "behind the database's",
	} {
		_, err := tryReplica(t, opt.DatabaseURL, "one", by(offset))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "NTP") {
			t.Errorf("a clock off by %s: %v", offset, err)
		}
	}
	near, err := tryReplica(t, opt.DatabaseURL, "one", by(500*time.Millisecond))
	storetest.Must(t, err)
	wait.Until(t, "a beat that measures the offset", func() bool { return near.ClockOffset() > 400*time.Millisecond })
	if offset := near.ClockOffset(); offset > 500*time.Millisecond {
		t.Errorf("the offset is %s, want at most 500 ms", offset)
	}
	near.stop()
}

// TestReplicas_RefusePooler holds that a replica needs connections of its own.
func TestReplicas_RefusePooler(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	pooled := server.Pool(t, server.URL(t))
	for range 2 { // with idle connections of the pooler, too
		_, err := tryReplica(t, pooled, "one")
		if err == nil || !strings.Contains(err.Error(), "pooler in transaction mode") {
			t.Errorf("through a pooler: %v", err)
		}
	}
	lock, err := store.LockServer(t.Context(), store.Options{DataDir: t.TempDir(), DatabaseURL: server.URL(t),
		Replica: &membership.Replica{ID: "one"}})
	storetest.Must(t, err)
	storetest.Must(t, lock.Release())
}
