// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// headlessService creates a headless Service with port 80 of pods db-0, db-1 and so on.
func (w *world) headlessService(pods int) *discoveryv1.EndpointSlice {
	w.Helper()
	w.kube.MustCreate(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "db"},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "db"},
			Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}})
	s := w.endpointsOf(w.namespace, "db", "")
	s.Endpoints = nil
	for n := range pods {
		pod := w.pod(fmt.Sprintf("pod %d", n))
		pod.Hostname = ptr.To(fmt.Sprintf("db-%d", n))
		s.Endpoints = append(s.Endpoints, pod)
	}
	return s
}

// TestExporter_ExportsPods exports the pods of a headless Service: a call reaches exactly the pod
// that it is for, and none when that is not ready.
func TestExporter_ExportsPods(t *testing.T) {
	w := newWorld(t)
	w.start(w.deployment(), exporting).ready()
	s := w.headlessService(2)
	nameless := w.pod("without a hostname")
	s.Endpoints = append(s.Endpoints, nameless)
	if err := w.kube.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	forged := w.endpointsOf(w.namespace, "db", "of another namespace") // the exporter does not dial it
	update(w, forged, func(s *discoveryv1.EndpointSlice) {
		delete(s.Labels, discoveryv1.LabelManagedBy)
		s.Endpoints[0].Hostname = ptr.To("db-9")
	})
	w.expectExport(w.serviceExport("db"), "Carried=True Carried", "")
	hosts := map[string]string{"db-0": "pod 0", "db-1": "pod 1",
		dashes(nameless.Addresses[0]): "without a hostname"}
	for host, want := range hosts {
		for range 4 {
			w.expectPortAt("db", account.PodPort(host, 80), want)
		}
	}
	w.expectPods(map[string]bool{"db-0": true, "db-1": true, dashes(nameless.Addresses[0]): true})

	update(w, s, func(s *discoveryv1.EndpointSlice) { s.Endpoints[1].Conditions.Ready = ptr.To(false) })
	w.expectPods(map[string]bool{"db-0": true, "db-1": false, dashes(nameless.Addresses[0]): true})
	w.expectPortAt("db", account.PodPort("db-1", 80), "stream refused: the upstream is unreachable")
	w.expectPortAt("db", account.PodPort("db-0", 80), "pod 0")

	update(w, s, func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:2] })
	w.expectPods(map[string]bool{"db-1": false})
	wait.Until(t, "the end of a pod's port", func() bool {
		return len(w.rows(fmt.Sprintf("tcp://%s:%d", w.host("db", "a"), account.PodPort("db-0", 80)))) == 0
	})
}

// TestExporter_LimitsPods checks that 64 pods of an export are carried, and that a condition counts
// the others.
func TestExporter_LimitsPods(t *testing.T) {
	w := newWorld(t)
	w.start(w.deployment(), exporting).ready()
	s := w.headlessService(70)
	if err := w.kube.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.expectExport(w.serviceExport("db"), "Carried=False PartlyCarried", "6 pods are left out")
	if n := len(w.records("db")[0].ServiceExport.Pods); n != account.MaxExportPods {
		t.Errorf("the record has %d pods", n)
	}
}

// expectPods waits until the record of Service db lists the pods and whether they are ready.
func (w *world) expectPods(want map[string]bool) {
	w.Helper()
	wait.Until(w.T, fmt.Sprintf("the record's pods %v", want), func() bool {
		records := w.records("db")
		if len(records) != 1 || len(records[0].ServiceExport.Pods) != len(want) {
			return false
		}
		for _, p := range records[0].ServiceExport.Pods {
			if ready, known := want[p.Hostname]; !known || ready != p.Ready {
				return false
			}
		}
		return true
	})
}
