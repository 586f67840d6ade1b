// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// secondReleaseRetry is how often a second release reports that it is inactive, as the report may
// fail or be overwritten.
const secondReleaseRetry = 10 * time.Second

// secondReleaseDetector reports that another release works in this namespace: it renews the Lease,
// and this one waits. It observes every read of the Lease and compares versions, as clocks may
// differ.
type secondReleaseDetector struct {
	process.EveryReplica
	own          installation.Installation
	log          logr.Logger
	registration *registration.Registration // whose status gets the report
	elected      <-chan struct{}            // closed when this manager leads
	found        notify.Signal              // receives when other was set

	mu      sync.Mutex
	version string // of the Lease that was read last
	other   string // the release that works here; empty: none known
}

func newSecondReleaseDetector(own installation.Installation, log logr.Logger) *secondReleaseDetector {
	return &secondReleaseDetector{own: own, log: log, found: notify.NewSignal()}
}

// observeLease is called with each Lease that was read.
func (d *secondReleaseDetector) observeLease(lease *coordinationv1.Lease) {
	holder, release := ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Annotations[installation.AnnotationInstallation]
	d.mu.Lock()
	defer d.mu.Unlock()
	renewed := d.version != "" && d.version != lease.ResourceVersion
	d.version = lease.ResourceVersion
	switch {
	case release == d.own.String() || release == "" || holder == "":
		d.other = ""
	case renewed && d.other != release:
		d.other = release
		d.log.Info("Another release runs in this namespace; this one stays inactive until that one is removed: "+
			"install it in a namespace of its own",
			"namespace", d.own.Namespace, "this", d.own.Release, "other", release, "holder", holder)
		d.found.Send()
	}
}

// Start reports until the context ends or this manager leads. It returns nil.
func (d *secondReleaseDetector) Start(ctx context.Context) error {
	retry := time.NewTicker(secondReleaseRetry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.elected:
			return nil
		case <-d.found:
		case <-retry.C:
		}
		d.mu.Lock()
		other := d.other
		d.mu.Unlock()
		if other == "" {
			continue
		}
		if err := d.registration.ReportSecondRelease(ctx, other); err != nil && ctx.Err() == nil {
			d.log.V(1).Info("Reporting the other release failed; it is retried", "cause", err.Error())
		}
	}
}
