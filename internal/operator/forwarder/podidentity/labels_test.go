// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"net/netip"
	"testing"
	"time"
)

// TestPods_LabelsChange checks that a pod's new labels are known with its event, and that only
// changes of labels are signalled.
func TestPods_LabelsChange(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		signalled := func() bool {
			select {
			case <-p.LabelsChanged():
				return true
			case <-time.After(time.Millisecond):
				return false
			}
		}
		if !signalled() {
			t.Error("the list is not signalled")
		}
		pod := newPod("a", "10.0.0.1")
		a.do(func() { a.w.Modify(pod) })
		if signalled() {
			t.Error("an event without other labels is signalled")
		}
		pod = newPod("a", "10.0.0.1")
		pod.Labels = map[string]string{"app": "web"}
		a.do(func() { a.w.Modify(pod) })
		if !signalled() {
			t.Error("new labels are not signalled")
		}
		known := p.Current(netip.MustParseAddr("10.0.0.1"))
		if known == nil {
			t.Fatal("the pod is not known")
		}
		if value, _ := known.Labels.Lookup("app"); value != "web" {
			t.Errorf("the label is %q", value)
		}
		if p.Current(netip.MustParseAddr("10.0.0.2")) != nil {
			t.Error("an address of no pod is known")
		}
		a.do(func() { a.hangs = true })
		time.Sleep(2 * aliveFor)
		if p.Current(netip.MustParseAddr("10.0.0.1")) != nil {
			t.Error("the pod is known though the cluster is silent")
		}
		a.do(func() { a.hangs = false })
	})
}
