// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fairlead-dev/fairlead/internal/controller/installation"
)

const (
	// leaseName is the same for every release of a namespace, so that a second one there does nothing.
	leaseName = "fairlead-operator"
	// leaseTimeout of one request for the Lease, so that a hung one does not cost the lead, which is given up after 10 s without a renewal.
	leaseTimeout = 5 * time.Second
)

// newLock is the leader election's Lease. Every write says whose it is, without a write of its own, so that it goes with the installation. Seen is called
// with every Lease that is read.
func newLock(
	config *rest.Config, own installation.Installation, owners func(context.Context) (installation.Owners, error), seen func(*coordinationv1.Lease),
) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading this pod's name: %w", err)
	}
	config = rest.AddUserAgent(config, "leader-election")
	config.Timeout = leaseTimeout
	client, err := coordination.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for the Lease: %w", err)
	}
	mark := func(ctx context.Context, lease *coordinationv1.Lease) {
		if owners, err := owners(ctx); err == nil { // else a later renewal says it
			lease.OwnerReferences = []metav1.OwnerReference{owners.Local}
		}
		own.Mark(lease)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: own.Namespace, Name: leaseName},
		Client:     markedLeases{client, mark, seen},
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, nil
}

// markedLeases marks what it writes.
type markedLeases struct {
	coordination.LeasesGetter
	mark func(context.Context, *coordinationv1.Lease)
	seen func(*coordinationv1.Lease)
}

// Leases implements coordination.LeasesGetter.
func (l markedLeases) Leases(namespace string) coordination.LeaseInterface {
	return markedLease{l.LeasesGetter.Leases(namespace), l.mark, l.seen}
}

type markedLease struct {
	coordination.LeaseInterface
	mark func(context.Context, *coordinationv1.Lease)
	seen func(*coordinationv1.Lease)
}

// Get implements coordination.LeaseInterface.
func (l markedLease) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Get(ctx, name, opts)
	if err == nil {
		l.seen(lease)
	}
	return lease, err
}

// Create implements coordination.LeaseInterface.
func (l markedLease) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mark(ctx, lease)
	return l.LeaseInterface.Create(ctx, lease, opts)
}

// Update implements coordination.LeaseInterface.
func (l markedLease) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mark(ctx, lease)
	return l.LeaseInterface.Update(ctx, lease, opts)
}
