// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestLabels_Lookup(t *testing.T) {
	t.Parallel()
	all := map[string]string{"app": "web", "app2": "", "a": "app", "example.com/app": "x"}
	l := NewLabels(all)
	for key, want := range all {
		if value, exists := l.Lookup(key); value != want || !exists {
			t.Errorf("%s: %q, %v", key, value, exists)
		}
	}
	for _, key := range []string{"", "web", "ap", "x"} {
		if value, exists := l.Lookup(key); exists {
			t.Errorf("%q: %q", key, value)
		}
	}
	if l != NewLabels(map[string]string{"example.com/app": "x", "a": "app", "app2": "", "app": "web"}) {
		t.Error("equal labels are not shared")
	}
	if _, exists := NewLabels(nil).Lookup("app"); exists || !NewLabels(nil).Known() {
		t.Error("a pod without labels has known labels: none")
	}
	if l := NewLabels(map[string]string{"app": "web", "long": strings.Repeat("x", maxLabels)}); l.Known() {
		t.Error("a part of the labels is known")
	} else if _, exists := l.Lookup("app"); exists {
		t.Error("labels that are not known have one")
	}
}

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
