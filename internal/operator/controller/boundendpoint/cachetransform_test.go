// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func decoded(t *testing.T, name, label string) *v1alpha1.BoundEndpoint {
	t.Helper()
	text := fmt.Sprintf(
		`{"metadata":{"name":%q,"namespace":"fairlead","uid":"u-%s","labels":{"part-of":%q},"annotations":{"a":"%s"},
		"managedFields":[{"manager":"x"}],"ownerReferences":[{"apiVersion":"v1","kind":"Role","name":"r","uid":"1","controller":true}]},
		"spec":{"service":"a","namespace":"demo","projectionID":"ep-1","endpoints":[{"id":"ep-1","url":"http://a.demo"}],"ports":[{"port":80,"scheme":"http","targetPort":10001,"state":"Bound"}]},
		"status":{"clusterIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True","reason":"Projected","message":"all is well","lastTransitionTime":null}]}}`,
		name, name, label, name)
	b := &v1alpha1.BoundEndpoint{}
	must.Succeed(t, json.Unmarshal([]byte(text), b))
	return b
}

// TestTransforms_PreserveContent checks that a transformed object equals the original, regardless
// of earlier ones, and that equal parts are kept once.
func TestTransforms_PreserveContent(t *testing.T) {
	t.Parallel()
	compact := CacheTransform()
	kept := map[string]*v1alpha1.BoundEndpoint{}
	for i, label := range []string{"one", "one", "two", "one"} {
		name := fmt.Sprintf("a%d.demo", i)
		want := decoded(t, name, label)
		want.ManagedFields = nil
		o, err := compact(decoded(t, name, label))
		must.Succeed(t, err)
		kept[name] = o.(*v1alpha1.BoundEndpoint)
		if diff := cmp.Diff(want, kept[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	one, other := kept["a0.demo"], kept["a1.demo"]
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() ||
		&one.OwnerReferences[0] != &other.OwnerReferences[0] {
		t.Error("equal labels and owners are kept twice")
	}
	if a, b := one.Status.Conditions[0].Message,
		other.Status.Conditions[0].Message; unsafe.StringData(a) != unsafe.StringData(b) {
		t.Error("equal texts are kept twice")
	}
	if cap(one.Spec.Ports) != 1 || cap(one.Status.Conditions) != 1 {
		t.Errorf("room for %d ports and %d conditions", cap(one.Spec.Ports), cap(one.Status.Conditions))
	}
}

func TestTransforms_DistinguishOwners(t *testing.T) {
	t.Parallel()
	base := metav1.OwnerReference{APIVersion: "v1", Kind: "Role", Name: "r", UID: "1", Controller: ptr.To(true)}
	if !equalOwner(base, *base.DeepCopy()) {
		t.Error("an equal owner is another")
	}
	for name, change := range map[string]func(*metav1.OwnerReference){
		"version": func(o *metav1.OwnerReference) { o.APIVersion = "v2" }, "kind": func(o *metav1.OwnerReference) {
			o.Kind = "x"
		},
		"name": func(o *metav1.OwnerReference) { o.Name = "x" }, "uid": func(o *metav1.OwnerReference) { o.UID = "2" },
		"controller": func(o *metav1.OwnerReference) {
			o.Controller = ptr.To(false)
		}, "no controller": func(o *metav1.OwnerReference) { o.Controller = nil },
		"blocking": func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) },
	} {
		o := *base.DeepCopy()
		change(&o)
		if equalOwner(base, o) {
			t.Errorf("%s: two owners are one", name)
		}
	}
}

func TestTransforms_Concurrent(t *testing.T) {
	t.Parallel()
	compact := CacheTransform()
	var wg sync.WaitGroup
	for i := range 8 {
		b := decoded(t, fmt.Sprintf("a%d.demo", i), fmt.Sprint(i%2))
		wg.Go(func() {
			o, err := compact(b)
			if got := o.(*v1alpha1.BoundEndpoint); err != nil || got.Labels["part-of"] != fmt.Sprint(i%2) {
				t.Errorf("labels %v, %v", got.Labels, err)
			}
		})
	}
	wg.Wait()
}
