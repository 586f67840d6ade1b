// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/controller/installation"
)

// reasonSecondRelease is the event's reason when another release works in this namespace already.
const reasonSecondRelease = "SecondRelease"

// rival tells people why this release does nothing: another one in its namespace holds the Lease. It is told of every read of the Lease, and speaks once
// for each holder's release.
type rival struct {
	own      installation.Installation
	log      logr.Logger
	recorder events.EventRecorder
	now      func() time.Time

	mu   sync.Mutex
	last string
}

// saw is called with each Lease that was read.
func (r *rival) saw(lease *coordinationv1.Lease) {
	holder, release := ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Annotations[installation.AnnotationInstallation]
	if release == r.own.String() || release == "" || holder == "" || r.expired(lease) {
		r.is("")
		return
	}
	if !r.is(release) {
		return
	}
	r.log.Info("Another release works in this namespace; this one does nothing until that one is gone: install it in a namespace of its own",
		"namespace", r.own.Namespace, "this", r.own.Release, "other", release, "holder", holder)
	subject := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}, ObjectMeta: lease.ObjectMeta}
	r.recorder.Eventf(subject, nil, corev1.EventTypeWarning, reasonSecondRelease, "Wait",
		"release %s does nothing: release %s works in this namespace (%s holds the Lease); install each in a namespace of its own", r.own.Release, release, holder)
}

func (r *rival) expired(lease *coordinationv1.Lease) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return r.now().After(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second))
}

// is remembers who works here, and says whether that is news.
func (r *rival) is(release string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := release != r.last
	r.last = release
	return news
}
