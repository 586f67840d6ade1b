// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderaddresses

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// cluster is what a Tracker reads and writes.
type cluster struct {
	source chan []*discoveryv1.EndpointSlice

	mu       sync.Mutex
	recorded []string            // the status
	lost     bool                // the next write arrives, and its answer does not
	listed   map[string]struct{} // ready addresses of our slices
	log      []string            // what was recorded, in order
	notified int
}

// start returns a Tracker that runs until the test ends.
func start(t *testing.T, c *cluster) *Tracker {
	t.Helper()
	c.source = make(chan []*discoveryv1.EndpointSlice)
	tracker := New(Options{Cluster: c, Record: c, Holders: c, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = tracker.Start(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return tracker
}

func (c *cluster) Watch(ctx context.Context, update func([]*discoveryv1.EndpointSlice)) error {
	for {
		select {
		case all := <-c.source:
			update(all)
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *cluster) Listed(context.Context) (map[string]struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.listed), nil
}

func (c *cluster) NotifyAll(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notified += len(names)
}

func (c *cluster) RecordedProjectedForwarders(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.recorded), nil
}

func (c *cluster) RecordProjectedForwarders(_ context.Context, addresses []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded = slices.Clone(addresses)
	c.log = append(c.log, strings.Join(addresses, " "))
	if c.lost {
		c.lost = false
		return errors.New("the answer was lost")
	}
	return nil
}

// takeLog returns what was recorded since the last call.
func (c *cluster) takeLog() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	log := c.log
	c.log = nil
	return log
}

// list sets the ready addresses of our slices.
func (c *cluster) list(addresses ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = map[string]struct{}{}
	for _, a := range addresses {
		c.listed[a] = struct{}{}
	}
}

// ready returns Kubernetes' slices with these ready addresses.
func ready(addresses ...string) []*discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)}})
	}
	return []*discoveryv1.EndpointSlice{s}
}

// acquire returns the ready addresses that a hostname gets, "unknown" if there are none yet.
func acquire(tracker *Tracker, hostname string) (string, func()) {
	addresses, release, ok := tracker.Acquire(hostname)
	if !ok {
		return "unknown", func() {}
	}
	return strings.Join(addresses.ready(), " "), release
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func expectLog(t *testing.T, c *cluster, want ...string) {
	t.Helper()
	if got := c.takeLog(); !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// TestTracker_RecordsBeforeHandingOut checks that an address is recorded before any hostname gets
// it, and that nothing is recorded while no hostname has slices.
func TestTracker_RecordsBeforeHandingOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		tracker := start(t, c)
		c.source <- ready("10.0.0.1", "10.0.0.2")
		synctest.Wait()
		expectLog(t, c)
		got, _ := acquire(tracker, "api.demo")
		expect(t, "before the record", got, "unknown")
		synctest.Wait()
		expectLog(t, c, "10.0.0.1 10.0.0.2")
		expect(t, "notifications", c.notified, 1)
		got, release := acquire(tracker, "api.demo")
		expect(t, "after the record", got, "10.0.0.1 10.0.0.2")
		release()

		c.source <- ready("10.0.0.1", "10.0.0.2", "10.0.0.3")
		synctest.Wait()
		expectLog(t, c, "10.0.0.1 10.0.0.2 10.0.0.3")
		time.Sleep(time.Minute)
		expectLog(t, c)
	})
}

// TestTracker_ShortensAfterAddressLeft checks that an address stays recorded while a snapshot with
// it is in use, and while a slice lists it.
func TestTracker_ShortensAfterAddressLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{recorded: []string{"10.0.0.1", "10.0.0.2"}}
		tracker := start(t, c)
		c.source <- ready("10.0.0.1", "10.0.0.2")
		synctest.Wait()
		_, _ = acquire(tracker, "api.demo")
		synctest.Wait()
		c.takeLog()
		_, release := acquire(tracker, "api.demo")
		c.source <- ready("10.0.0.2")
		time.Sleep(10 * time.Second)
		got, releaseNew := acquire(tracker, "api.demo")
		expect(t, "handed out", got, "10.0.0.2")
		releaseNew()
		expectLog(t, c) // a writer may still list it
		c.list("10.0.0.1", "10.0.0.2")
		release()
		time.Sleep(10 * time.Second)
		expectLog(t, c) // a slice lists it
		c.list("10.0.0.2")
		time.Sleep(10 * time.Second)
		expectLog(t, c, "10.0.0.2")

		tracker.Forget("api.demo")
		c.list()
		time.Sleep(10 * time.Second)
		expectLog(t, c, "")
		got, _ = acquire(tracker, "web.demo")
		expect(t, "after the last hostname", got, "unknown")
		synctest.Wait()
		expectLog(t, c, "10.0.0.2")
	})
}

// TestTracker_StartsFromRecord checks that a new leader hands out what its predecessor recorded
// without a write, and does not shorten what slices list.
func TestTracker_StartsFromRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{recorded: []string{"10.0.0.1", "10.0.0.9"}}
		c.list("10.0.0.1", "10.0.0.9")
		tracker := start(t, c)
		c.source <- ready("10.0.0.1")
		time.Sleep(20 * time.Second)
		expectLog(t, c)
		_, _ = acquire(tracker, "api.demo")
		synctest.Wait()
		got, release := acquire(tracker, "api.demo")
		expect(t, "handed out", got, "10.0.0.1")
		release()
		expectLog(t, c)
	})
}

// TestTracker_LostAnswer checks that an address whose removal was written without an answer is
// recorded again before it is handed out.
func TestTracker_LostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		tracker := start(t, c)
		c.source <- ready("10.0.0.1", "10.0.0.2")
		_, _ = acquire(tracker, "api.demo")
		synctest.Wait()
		c.takeLog()
		c.lost = true
		c.source <- ready("10.0.0.2")
		synctest.Wait()
		expectLog(t, c, "10.0.0.2")
		c.source <- ready("10.0.0.1", "10.0.0.2")
		time.Sleep(time.Second)
		expectLog(t, c, "10.0.0.1 10.0.0.2")
	})
}

// TestCopyEndpoints checks what is copied of Kubernetes' slices.
func TestCopyEndpoints(t *testing.T) {
	t.Parallel()
	terminating := discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true),
		Terminating: ptr.To(true)}
	source := ready("10.0.0.2")
	source[0].Endpoints[0].NodeName, source[0].Endpoints[0].Zone = ptr.To("n1"), ptr.To("z1")
	source[0].Endpoints[0].Hostname = ptr.To("pod-1")
	source[0].Endpoints = append(source[0].Endpoints,
		discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: terminating},
		discoveryv1.Endpoint{Addresses: []string{"10.0.0.3"},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}},
	)
	source = append(source, ready("10.0.0.1")...) // moved to another slice
	source = append(source, &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6})
	got := copyEndpoints(source)
	if v6, ok := got[discoveryv1.AddressTypeIPv6]; !ok || len(v6) != 0 {
		t.Errorf("IPv6: %v", got)
	}
	v4 := got[discoveryv1.AddressTypeIPv4]
	if len(v4) != 2 || v4[0].Addresses[0] != "10.0.0.1" || !isReady(v4[0]) {
		t.Fatalf("IPv4: %+v", v4)
	}
	if e := v4[1]; *e.NodeName != "n1" || *e.Zone != "z1" || e.Hostname != nil || e.TargetRef != nil {
		t.Errorf("copied: %+v", e)
	}
	if only := got.only([]string{"10.0.0.2"}); len(only[discoveryv1.AddressTypeIPv4]) != 1 {
		t.Errorf("not recorded: %+v", only)
	}
}
