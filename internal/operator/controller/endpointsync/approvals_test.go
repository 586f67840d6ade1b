// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// A reader whose cache still has the version before must not lose the approval of the next one:
// nothing would approve it again.
func TestApprovals_OutliveReadsOfOlderVersions(t *testing.T) {
	t.Parallel()
	before := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Name: "api.demo", UID: "u-1", Generation: 4}}
	observe(before)
	after := before.DeepCopy()
	after.Generation = 5
	recreated := after.DeepCopy()
	recreated.UID, recreated.Generation, recreated.Status = "u-2", 1, v1alpha1.BoundEndpointStatus{}
	for name, next := range map[string]*v1alpha1.BoundEndpoint{"changed": after, "made anew": recreated} {
		a := &Approvals{}
		a.approve("api.demo", next)
		if !a.Approved(before) || !a.Approved(next) {
			t.Errorf("%s: it is not approved after its older version was read", name)
		}
		observe(next)
		if !a.Approved(next) || len(a.approved) > 0 {
			t.Errorf("%s: the approval of an observed object is kept: %v", name, a.approved)
		}
	}
}

func observe(b *v1alpha1.BoundEndpoint) {
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionServicesReady,
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProjected, ObservedGeneration: b.Generation})
}

// A cloud endpoint that is deleted while its object is being written is released without delay too.
func TestReconciler_DeletedWhileWriting(t *testing.T) {
	t.Parallel()
	l := newLifecycle(t, 1, PortRange{First: 10000, Last: 10010})
	e := agentEndpoint("ep-1", "http://api.demo")
	e.Type = account.TypeCloud
	l.event(account.Added, e)
	desired := l.r.Set.Desired("api.demo")
	spec, _ := planner{now: l.now, delays: l.r.Delays, ports: l.r.Ports, hostname: "api.demo",
		desired: desired}.plan(nil)
	l.event(account.Deleted, e)
	l.r.finish("api.demo", spec, desired, l.now, false)
	if !l.r.Set.Desired("api.demo").Immediate.Has(80) {
		t.Error("port 80 waits for the removal delay, which is for agents that may come back")
	}
	l.r.finish("api.demo", nil, desired, l.now, false)
	if l.r.Set.Desired("api.demo").Immediate.Has(80) || len(l.r.Set.deletedPorts) > 0 {
		t.Error("the deletion is remembered after the object has gone")
	}
}
