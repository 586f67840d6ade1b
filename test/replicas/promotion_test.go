// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// pair is a PostgreSQL with a standby, which is asynchronous.
type pair struct {
	primary, standby *postgrestest.Server
	url              string // of both
}

func startPair(t *testing.T, settings ...string) *pair {
	t.Helper()
	p := &pair{primary: startPostgres(t, settings...)}
	url := p.primary.URL(t)
	var err error
	p.standby, err = p.primary.Standby()
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := p.standby.Remove(); err != nil {
			t.Error(err)
		}
	})
	p.url, err = p.primary.WithStandby(url, p.standby)
	must.Succeed(t, err)
	return p
}

// onPrimary executes statements.
func (p *pair) onPrimary(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		must.Succeed(t, p.primary.Exec(t.Context(), p.primary.AdminURL(), statement))
	}
}

// cut makes the standby lack all that is written from now on; it has what was written before.
func (p *pair) cut(t *testing.T) {
	t.Helper()
	p.onPrimary(t, `DO $$ DECLARE written pg_lsn := pg_current_wal_lsn(); BEGIN
		WHILE NOT EXISTS (SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= written)
		LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$`)
	must.Succeed(t, p.standby.CutReplication(t.Context()))
}

// failOver kills the primary and promotes the standby.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	must.Succeed(t, p.primary.Crash())
	must.Succeed(t, p.standby.Promote(t.Context()))
}

// TestReplicas_FollowPromotedStandby kills PostgreSQL and promotes its synchronous standby: traffic
// without a login goes on, one epoch begins, and watchers that change servers miss nothing.
func TestReplicas_FollowPromotedStandby(t *testing.T) {
	t.Parallel()
	p := startPair(t, "synchronous_commit=remote_apply")
	p.onPrimary(t, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	r := startRigOn(t, p.url, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	watchers := []*watcher{r.startWatcher(0, 0), r.startWatcher(1, 5)}
	r.eventLatencies(watchers, 10)
	before := r.version(0)
	l := startLoad(t, requestRate(t), c.targets()...)
	l.wait(50)
	p.failOver(t)
	took := r.requireWrites(time.Now())
	t.Logf("all write %s after the promotion", took)
	if most := limit(3*time.Second, 15*time.Second); took > most {
		t.Errorf("all servers write %s after the promotion, want %s", took, most)
	}
	l.wait(100)
	l.stop()
	l.requireNoFailure("promotion")
	r.requireOneEpoch(before, watchers)
}

// requireOneEpoch holds that one epoch has begun after a version, and that the watchers have listed
// again and missed nothing.
func (r *rig) requireOneEpoch(before account.ResourceVersion, watchers []*watcher) {
	r.t.Helper()
	after := r.version(0)
	for _, w := range watchers {
		w.requireList(2)
		if n := w.epochCount(); n != 2 {
			r.t.Errorf("a watcher has seen %d epochs, want 2", n)
		}
	}
	if after.Epoch <= before.Epoch {
		r.t.Errorf("the epoch is %d after %d", after.Epoch, before.Epoch)
	}
}

// version returns the version of a server's list.
func (r *rig) version(server int) account.ResourceVersion {
	r.t.Helper()
	list, err := r.replicas[server].api.ListEndpoints(r.t.Context(), account.EndpointFilter{})
	must.Succeed(r.t, err)
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
