// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name}}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name}}
}

// slowSource answers no list before available is closed.
type slowSource struct {
	*cachetesting.FakeControllerSource
	available chan struct{}
}

func (s *slowSource) List(options metav1.ListOptions) (runtime.Object, error) {
	<-s.available
	return s.FakeControllerSource.List(options)
}

// harness runs a Set of pods and ConfigMaps inside a bubble.
type harness struct {
	pods       *slowSource
	configMaps *cachetesting.FakeControllerSource
	podStore   cache.Store
	updates    int // read after synctest.Wait
}

func runSet(t *testing.T, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{pods: &slowSource{cachetesting.NewFakeControllerSource(), make(chan struct{})},
			configMaps: cachetesting.NewFakeControllerSource()}
		set := NewSet()
		var err error
		h.podStore, err = set.Add(h.pods, &corev1.Pod{}, func(o any) (any, error) {
			o.(*corev1.Pod).Labels = map[string]string{"transformed": "yes"}
			return o, nil
		})
		if err == nil {
			_, err = set.Add(h.configMaps, &corev1.ConfigMap{}, func(o any) (any, error) { return o, nil })
		}
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			set.Run(ctx, func() { h.updates++ })
		}()
		test(h)
		cancel()
		<-done
		h.pods.Broadcaster.Shutdown()
		h.configMaps.Broadcaster.Shutdown()
	})
}

// updated reports whether update was called since the last call of updated.
func (h *harness) updated() bool {
	synctest.Wait()
	defer func() { h.updates = 0 }()
	return h.updates > 0
}

func TestSet_UpdatesOnceFirstInformerHasSynced(t *testing.T) {
	t.Parallel()
	runSet(t, func(h *harness) {
		h.configMaps.Add(configMap("a"))
		h.pods.Add(pod("a"))
		if h.updated() {
			t.Error("updated before the first informer has synced")
		}
		close(h.pods.available)
		if !h.updated() {
			t.Error("not updated after the first list")
		}
		if o, ok, err := h.podStore.GetByKey("demo/a"); err != nil || !ok ||
			o.(*corev1.Pod).Labels["transformed"] != "yes" {
			t.Errorf("the store has %v, %v", h.podStore.List(), err)
		}
	})
}

func TestSet_UpdatesAfterChangesOfAny(t *testing.T) {
	t.Parallel()
	runSet(t, func(h *harness) {
		close(h.pods.available)
		h.updated()
		changed := pod("a")
		changed.Annotations = map[string]string{"changed": "yes"}
		for _, step := range []struct {
			name   string
			change func()
			want   []string
		}{
			{"addition", func() { h.pods.Add(pod("a")) }, []string{"demo/a"}},
			{"modification", func() { h.pods.Modify(changed) }, []string{"demo/a"}},
			{"change of the second informer", func() { h.configMaps.Add(configMap("a")) }, []string{"demo/a"}},
			{"deletion", func() { h.pods.Delete(changed) }, nil},
		} {
			step.change()
			if !h.updated() {
				t.Errorf("%s: not updated", step.name)
			}
			if got := h.podStore.ListKeys(); !slices.Equal(got, step.want) && len(got)+len(step.want) > 0 {
				t.Errorf("%s: pods %v, want %v", step.name, got, step.want)
			}
		}
		if h.updated() {
			t.Error("updated without a change")
		}
	})
}
