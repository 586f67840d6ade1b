// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/accessstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/trustrules"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// trustObjects reads EndpointTrust objects, outside of the cache, as the cluster may not have their
// CRD, and has their statuses written. A nil trustObjects does nothing.
type trustObjects struct {
	watcher *trustrules.Watcher
	changes *notify.Source
	client  client.Client

	forwarders Forwarders
	cached     client.Client
	hostnames  *notify.Source // hostnames is notified of BoundEndpoints whose status may have changed.

	mu          sync.Mutex
	rules       *endpointtrust.Rules // rules and enforcement are what hostnames was last notified of.
	enforcement map[string]forwarderstatus.Enforcement
}

// Decide implements boundendpoint.Trust.
func (t *trustObjects) Decide(u account.EndpointURL) endpointtrust.Decision {
	rules := t.snapshot()
	if rules == nil {
		return endpointtrust.Decision{Trust: sealed.TrustOptions{Mode: sealed.Off}}
	}
	return rules.Decide(u)
}

// RequestPins implements boundendpoint.Trust.
func (t *trustObjects) RequestPins(namespace string) {
	for _, name := range t.watcher.Names() {
		if name.Namespace == namespace {
			t.changes.NotifyObject(name)
		}
	}
}

// snapshot returns the current rules; nil for a nil trustObjects.
func (t *trustObjects) snapshot() *endpointtrust.Rules {
	if t == nil {
		return nil
	}
	return t.watcher.Snapshot()
}

// Enforcement implements boundendpoint.Trust.
func (t *trustObjects) Enforcement(namespace string) forwarderstatus.Enforcement {
	return t.forwarders.TrustEnforcement(namespace, t.watcher.Snapshot().Digests[namespace])
}

// newTrust returns nil if the objects are not to be read.
func newTrust(o settings, c client.Client) (*trustObjects, error) {
	if o.Sealed == "" {
		return nil, nil
	}
	watcher, err := trustrules.New(trustrules.Options{Kubernetes: clientConfig(o.Kubernetes), Default: o.seal,
		Namespaces: o.AllowNamespaces, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("preparing to read EndpointTrust objects: %w", err)
	}
	return &trustObjects{watcher: watcher, changes: notify.New("", accessDebounce), client: c}, nil
}

// setup adds the controller, and what reads the objects while this manager leads.
func (t *trustObjects) setup(
	mgr ctrl.Manager, forwarders Forwarders, announced accessstatus.Announced,
	hostnames *notify.Source,
) error {
	if t == nil {
		return nil
	}
	t.forwarders, t.hostnames, t.cached = forwarders, hostnames, mgr.GetClient()
	statuses := &accessstatus.TrustReconciler{Client: t.client, Objects: t.watcher, Forwarders: forwarders,
		Announced: announced, Clock: clock.RealClock{}}
	return errors.Join(statuses.SetupWithManager(mgr, t.changes), mgr.Add(t))
}

// notify requests the statuses of all objects and of all BoundEndpoints, of these if the rules or what
// enforces them have changed.
func (t *trustObjects) notify(ctx context.Context) {
	if t == nil {
		return
	}
	t.changes.NotifyObjects(t.watcher.Names())
	rules := t.watcher.Snapshot()
	enforcement := map[string]forwarderstatus.Enforcement{"": t.Enforcement("")}
	for namespace := range rules.Digests {
		enforcement[namespace] = t.Enforcement(namespace)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if rules != t.rules || !maps.Equal(enforcement, t.enforcement) {
		t.rules, t.enforcement = rules, enforcement
		t.hostnames.NotifyObjects(notify.Names(ctx, t.cached, &v1alpha1.BoundEndpointList{}))
	}
}

// Start reads the objects until the context ends.
func (t *trustObjects) Start(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { defer close(ended); t.watcher.Run(ctx) }()
	for {
		select {
		case <-t.watcher.Changed():
			t.notify(ctx)
		case <-ctx.Done():
			<-ended
			return nil
		}
	}
}
