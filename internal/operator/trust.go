// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/accessstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/trustrules"
)

// trustObjects reads EndpointTrust objects, outside of the cache, as the cluster may not have their
// CRD, and has their statuses written. A nil trustObjects does nothing.
type trustObjects struct {
	watcher *trustrules.Watcher
	changes *notify.Source
	client  client.Client
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
func (t *trustObjects) setup(mgr ctrl.Manager, forwarders Forwarders) error {
	if t == nil {
		return nil
	}
	statuses := &accessstatus.TrustReconciler{Client: t.client, Objects: t.watcher, Forwarders: forwarders,
		Clock: clock.RealClock{}}
	return errors.Join(statuses.SetupWithManager(mgr, t.changes), mgr.Add(t))
}

// notify requests the statuses of all objects.
func (t *trustObjects) notify() {
	if t != nil {
		t.changes.NotifyObjects(t.watcher.Names())
	}
}

// Start reads the objects until the context ends.
func (t *trustObjects) Start(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { defer close(ended); t.watcher.Run(ctx) }()
	for {
		select {
		case <-t.watcher.Changed():
			t.notify()
		case <-ctx.Done():
			<-ended
			return nil
		}
	}
}
