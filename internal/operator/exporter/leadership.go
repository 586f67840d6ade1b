// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// Durations of the Lease. Only status, events and what has no session depend on it.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	leaseRetry    = 2 * time.Second
)

// leadership holds the Lease of the exporters, or waits for it. A replica that loses it, as when
// the API server is away, goes on serving and waits again: it is no reason to end.
type leadership struct {
	lock resourcelock.Interface
	log  *slog.Logger
	// onElected are called each time this replica gets the Lease, with a context that ends when it
	// loses it. They may block.
	onElected []func(context.Context)

	leading atomic.Bool
	cluster atomic.Pointer[string] // UID of the cluster; nil before this replica can lead
}

// newLeadership prepares the Lease <deployment> of the namespace. It is deleted with the
// exporters' Deployment.
func newLeadership(o *Options, owner *deployment) (*leadership, error) {
	lock, err := process.NewLock(clientConfig(o.Kubernetes),
		types.NamespacedName{Namespace: o.Namespace, Name: o.Deployment}, o.PodName,
		func(leases coordination.LeaseInterface, _ string) coordination.LeasesGetter {
			return ownedLeases{leases, owner}
		})
	return &leadership{log: o.Logger.With("logger", "lease"), lock: lock}, err
}

// Leading reports whether this replica holds the Lease.
func (l *leadership) Leading() bool { return l.leading.Load() }

// Cluster returns the UID of the cluster. It is known once this replica can lead.
func (l *leadership) Cluster() string { return *l.cluster.Load() }

// run holds the Lease or waits for it until ctx ends, and then releases it.
func (l *leadership) run(ctx context.Context) error {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: l.lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: leaseRetry,
			ReleaseOnCancel: true, Name: "exporter",
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: l.lead, OnStoppedLeading: l.stop},
		})
		if err != nil {
			return fmt.Errorf("preparing the Lease: %w", err)
		}
		elector.Run(ctx)
	}
	return nil
}

// lead runs while this replica holds the Lease.
func (l *leadership) lead(ctx context.Context) {
	l.log.Info("this replica now writes the status of objects")
	l.leading.Store(true)
	var running sync.WaitGroup
	for _, f := range l.onElected {
		running.Go(func() { f(ctx) })
	}
	running.Wait()
}

func (l *leadership) stop() {
	if l.leading.Swap(false) {
		l.log.Info("this replica no longer writes the status of objects")
	}
}

// ownedLeases writes the Lease with its owner.
type ownedLeases struct {
	coordination.LeaseInterface
	deployment *deployment
}

// Leases implements coordination.LeasesGetter for the only namespace.
func (l ownedLeases) Leases(string) coordination.LeaseInterface { return l }

// Create implements coordination.LeaseInterface.
func (l ownedLeases) Create(
	ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	l.own(lease)
	return l.LeaseInterface.Create(ctx, lease, opts)
}

// Update implements coordination.LeaseInterface.
func (l ownedLeases) Update(
	ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	l.own(lease)
	return l.LeaseInterface.Update(ctx, lease, opts)
}

func (l ownedLeases) own(lease *coordinationv1.Lease) {
	if owner := l.deployment.owner.Load(); owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*owner}
	}
}
