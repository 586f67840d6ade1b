// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// leaseName is the same for every release of a namespace, so that a second release there stays
// inactive.
const leaseName = "fairlead-operator"

// Durations of the leader election.
//
// A killed manager is succeeded when its Lease has not been renewed for leaseDuration: 3 to 5.2 s
// later, including the successor's retry interval. A leader that cannot renew continues for
// renewDeadline, longer than its Lease lasts: stopping would only add a restart to an outage of the
// API server, during which no other manager can acquire the Lease either. Its writes are safe in
// the seconds after another manager has acquired the Lease: every write names the version that it
// replaces, and of two objects with one target port the older keeps it
// (internal/operator/forwarder). It stops as soon as it reads another holder.
//
// If the API server is slow, the leader sets a longer duration, by twice the time of its last
// request, so that neither its renewals nor the reads of the others are too late.
const (
	leaseDuration    = 3 * time.Second
	maxLeaseDuration = 15 * time.Second
	renewDeadline    = 10 * time.Second
	leaseRetry       = 500 * time.Millisecond
)

// errLeaseTaken ends a manager that lost the leadership.
var errLeaseTaken = errors.New("another manager acquired the Lease, as this one did not renew it in time")

// newLock returns the leader election's Lease. Every write sets its owner, without a write of its
// own, so that the Lease is deleted with the installation. second observes each read of the Lease;
// stop is called when another manager acquired the Lease of this one.
func newLock(
	config *rest.Config, anchors *installation.Anchors, second *secondReleaseDetector, stop context.CancelCauseFunc,
) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading this pod's name: %w", err)
	}
	return process.NewLock(config, types.NamespacedName{Namespace: second.own.Namespace, Name: leaseName}, host,
		func(leases coordination.LeaseInterface, identity string) coordination.LeasesGetter {
			return &leaseClient{LeaseInterface: leases, identity: identity, anchors: anchors, second: second,
				stop: stop}
		})
}

// leaseClient reads and writes the Lease for the leader election, which calls it from one
// goroutine.
type leaseClient struct {
	coordination.LeaseInterface
	identity string
	anchors  *installation.Anchors
	second   *secondReleaseDetector
	stop     context.CancelCauseFunc

	isHolder     bool          // this manager wrote the Lease last
	lastDuration time.Duration // of the last request
}

// Leases implements coordination.LeasesGetter for the only namespace.
func (l *leaseClient) Leases(string) coordination.LeaseInterface { return l }

// Get implements coordination.LeaseInterface.
func (l *leaseClient) Get(
	ctx context.Context, name string, opts metav1.GetOptions,
) (lease *coordinationv1.Lease, err error) {
	l.timed(func() { lease, err = l.LeaseInterface.Get(ctx, name, opts) })
	if err != nil {
		return nil, err
	}
	l.second.observeLease(lease)
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); l.isHolder && holder != "" && holder != l.identity {
		l.isHolder = false
		l.stop(errLeaseTaken)
	}
	return lease, nil
}

// Create implements coordination.LeaseInterface.
func (l *leaseClient) Create(
	ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions,
) (made *coordinationv1.Lease, err error) {
	l.prepare(lease)
	l.timed(func() { made, err = l.LeaseInterface.Create(ctx, lease, opts) })
	l.recordWrite(lease, err)
	return made, err
}

// Update implements coordination.LeaseInterface.
func (l *leaseClient) Update(
	ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions,
) (updated *coordinationv1.Lease, err error) {
	l.prepare(lease)
	l.timed(func() { updated, err = l.LeaseInterface.Update(ctx, lease, opts) })
	l.recordWrite(lease, err)
	return updated, err
}

// prepare completes a Lease before it is written. A released one keeps its duration.
func (l *leaseClient) prepare(lease *coordinationv1.Lease) {
	if ptr.Deref(lease.Spec.HolderIdentity, "") == l.identity {
		lease.Spec.LeaseDurationSeconds = new(leaseSeconds(l.lastDuration))
	}
	if owners, known := l.anchors.Known(); known { // otherwise a later renewal sets the owner
		lease.OwnerReferences = owners.Local
	}
	l.anchors.Installation.Mark(lease)
}

// leaseSeconds returns the duration of a Lease, in seconds, if a request takes as long as the last
// one.
func leaseSeconds(requestTime time.Duration) int32 {
	return int32(min(leaseDuration+2*requestTime, maxLeaseDuration).Round(time.Second) / time.Second)
}

func (l *leaseClient) recordWrite(lease *coordinationv1.Lease, err error) {
	if err == nil {
		l.isHolder = ptr.Deref(lease.Spec.HolderIdentity, "") == l.identity
	}
}

func (l *leaseClient) timed(request func()) {
	started := time.Now()
	request()
	l.lastDuration = time.Since(started)
}
