// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/testenv/wait"
)

// TestReplicas_FollowPromotedStandby kills PostgreSQL and promotes its synchronous standby: traffic
// without a login goes on, one epoch begins, and watchers that change servers miss nothing.
func TestReplicas_FollowPromotedStandby(t *testing.T) {
	t.Parallel()
	primary := startPostgres(t, "synchronous_commit=remote_apply")
	url := primary.URL(t)
	standby, err := primary.Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Remove(); err != nil {
			t.Error(err)
		}
	})
	if url, err = primary.WithStandby(url, standby); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if err := primary.Exec(t.Context(), primary.AdminURL(), statement); err != nil {
			t.Fatal(err)
		}
	}
	r := startRigOn(t, url, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	watchers := []*watcher{r.startWatcher(0, 0), r.startWatcher(1, 5)}
	r.eventLatencies(watchers, 10)
	before := r.version(0)
	l := startLoad(t, number(t, rateVariable, 100), c.targets()...)
	l.wait(50)
	if err := primary.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := r.requireWrites(time.Now())
	t.Logf("all write %s after the promotion", took)
	if most := limit(3*time.Second, 15*time.Second); took > most {
		t.Errorf("all servers write %s after the promotion, want %s", took, most)
	}
	l.wait(100)
	l.stop()
	l.requireNoFailure("promotion")
	after := r.version(0)
	for _, w := range watchers {
		w.requireList(2)
		if n := w.epochCount(); n != 2 {
			t.Errorf("a watcher has seen %d epochs, want 2", n)
		}
	}
	if after.Epoch <= before.Epoch {
		t.Errorf("the epoch is %d after %d", after.Epoch, before.Epoch)
	}
}

// version returns the version of a server's list.
func (r *rig) version(server int) account.ResourceVersion {
	r.t.Helper()
	list, err := r.replicas[server].api.ListEndpoints(r.t.Context(), account.EndpointFilter{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Version
}

// epochCount returns how many epochs the lists of the watcher had, once it has listed again.
func (w *watcher) epochCount() int {
	w.r.t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.epochs)
	}
	wait.Until(w.r.t, "a watcher to list again", func() bool { return count() > 1 })
	return count()
}
