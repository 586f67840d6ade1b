// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func testChange() Change {
	return Change{Kind: ChangeSessions, AccountIDs: []string{testAccount}, IDs: []string{"ts-1", "ts-2"},
		Code: tunnel.CodeStop, Message: "stopped"}
}

// blackHole is a listener that accepts and never answers.
func blackHole(t *testing.T) net.Listener {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() })
	return l // the kernel accepts
}

func TestPublish_ReturnsWhenAllHaveApplied(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one, two, three := c.start("rp-1"), c.start("rp-2"), c.start("rp-3")
	if err := one.Publish(t.Context(), testChange()); err != nil { // without waiting for links
		t.Fatal(err)
	}
	for _, r := range []*testReplica{two, three} {
		if d := cmp.Diff([]Change{testChange()}, r.local.changes()); d != "" {
			t.Errorf("%s: %s", r.opt.ID, d)
		}
	}
	if n := len(one.local.changes()); n != 0 {
		t.Errorf("applied %d of its own", n)
	}
	for _, s := range one.Status() {
		if s.PendingChanges != 0 || s.OverdueChanges != 0 {
			t.Errorf("status %+v", s)
		}
	}
}

func TestPublish_WaitsForApplyingPeer(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	begun, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	holds.local.apply = func(context.Context, Change) error {
		once.Do(func() { close(begun) })
		<-proceed
		return nil
	}
	result := make(chan error, 1)
	go func() { result <- asks.Publish(context.Background(), testChange()) }()
	wait.Receive(t, "the change", begun)
	select {
	case err := <-result:
		t.Fatalf("returned %v before the peer has applied the change", err)
	case <-time.After(50 * time.Millisecond):
	}
	if s := asks.Status(); s[0].PendingChanges != 1 {
		t.Errorf("status %+v", s)
	}
	close(proceed)
	if err := wait.Receive(t, "the end", result); err != nil {
		t.Error(err)
	}
}

func TestPublish_RetriesFailingPeer(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	attempts := 0
	holds.local.apply = func(context.Context, Change) error {
		if attempts++; attempts < 3 {
			return errors.New("the store is away")
		}
		return nil
	}
	if err := asks.Publish(t.Context(), testChange()); err != nil || len(holds.local.changes()) != 1 {
		t.Errorf("%v, %d applied", err, len(holds.local.changes()))
	}
}

// TestPublish_ReportsStoreAnswers tells a peer that fails whether the store has answered since.
func TestPublish_ReportsStoreAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lease = time.Second
	asks, holds := c.pair(echo)
	holds.local.apply = func(_ context.Context, c Change) error {
		if !c.StoreAnswers {
			return errors.New("the store is away")
		}
		return nil
	}
	if err := asks.Publish(t.Context(), testChange()); err != nil || len(holds.local.changes()) != 1 {
		t.Errorf("%v, %d applied", err, len(holds.local.changes()))
	}
	c.registry.fail(errors.New("the store is away"))
	if err := asks.Publish(t.Context(), testChange()); err != nil || len(holds.local.changes()) != 1 {
		t.Errorf("while the store is away: %v, %d applied", err, len(holds.local.changes()))
	}
}

func TestStatus_HasStoreAgeOfPeers(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	wait.Until(t, "a ping", func() bool { return !asks.Status()[0].Heard.IsZero() })
	if age := asks.Status()[0].StoreAge; age != time.Minute {
		t.Errorf("%v", age)
	}
	if age := decodePing(nil); age != -1 {
		t.Errorf("of an older version: %v", age)
	}
}

func TestPublish_ReachesNewReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one := c.start("rp-1")
	wait.Until(t, "the first read", func() bool { return one.registry.has("rp-1") })
	for i := range 5 { // whatever the phase of the poll
		two := c.start(fmt.Sprint("rp-2", i))
		must.Succeed(t, one.Publish(t.Context(), testChange()))
		if len(two.local.changes()) != 1 {
			t.Error("a replica that joined before the change was not told")
		}
	}
}

func TestPublish_ManyIDs(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	change := Change{Kind: ChangePeople}
	for i := range maxChangeIDs*2 + 1 {
		change.IDs = append(change.IDs, fmt.Sprintf("as-%026d", i))
	}
	must.Succeed(t, asks.Publish(t.Context(), change))
	var got []string
	for _, c := range holds.local.changes() {
		got = append(got, c.IDs...)
	}
	if !cmp.Equal(got, change.IDs) {
		t.Errorf("%d ids arrived of %d", len(got), len(change.IDs))
	}
}

func TestPublish_WaitsForLeaseOfSilentPeer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lease = 500 * time.Millisecond
	one, two := c.start("rp-1"), c.start("rp-2")
	c.registry.add("rp-3", blackHole(t).Addr().String())
	began := time.Now()
	must.Succeed(t, one.Publish(t.Context(), testChange()))
	if took := time.Since(began); took < 1500*time.Millisecond || took > 5*time.Second {
		t.Errorf("returned after %v, want the lease and a second", took)
	}
	if len(two.local.changes()) != 1 {
		t.Error("the other peer was not told")
	}
	for _, s := range one.Status() {
		if want := int64(map[string]int{"rp-2": 0, "rp-3": 1}[s.ID]); s.OverdueChanges != want ||
			s.PendingChanges != 0 {
			t.Errorf("status %+v, want %d overdue", s, want)
		}
	}
}

func TestPublish_EndsWithRowOfPeer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lease = time.Minute
	one := c.start("rp-1")
	c.registry.add("rp-3", blackHole(t).Addr().String())
	result := make(chan error, 1)
	go func() { result <- one.Publish(context.Background(), testChange()) }()
	wait.Until(t, "the change to be pending", func() bool {
		s := one.Status()
		return len(s) == 1 && s[0].PendingChanges == 1
	})
	c.registry.remove("rp-3")
	if err := wait.Receive(t, "the end", result); err != nil {
		t.Error(err)
	}
}

func TestPublish_WaitsWhileRegistryIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lease = 100 * time.Millisecond
	asks, holds := c.pair(echo)
	c.registry.fail(errors.New("the store is away"))
	began := time.Now()
	must.Succeed(t, asks.Publish(t.Context(), testChange()))
	if took := time.Since(began); took < 1100*time.Millisecond {
		t.Errorf("returned after %v, before the lease of replicas that are not known", took)
	}
	if len(holds.local.changes()) != 1 {
		t.Error("the known peer was not told")
	}
}

func TestPublish_AloneReadsRegistryOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lease = time.Minute
	one := c.start("rp-1")
	if err := one.Publish(t.Context(), testChange()); err != nil {
		t.Error(err)
	}
}

func TestPublish_EndsWithContextAndRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one := c.start("rp-1")
	c.registry.add("rp-3", blackHole(t).Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := one.Publish(ctx, testChange()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	result := make(chan error, 1)
	go func() { result <- one.Publish(context.Background(), testChange()) }()
	one.stop()
	if err := wait.Receive(t, "the end", result); !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
}
