// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// full is metadata with all that users write.
func full() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "demo", Name: "api", UID: "u", ResourceVersion: "7", Generation: 2,
		Labels:          map[string]string{discoveryv1.LabelServiceName: "api", "team": "a"},
		Annotations:     map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		OwnerReferences: []metav1.OwnerReference{{Name: "x"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "x"}}}
}

// exportedSpec is that of a Service with all fields that are exported.
func exportedSpec(clusterIP string, nodePort *int32) corev1.ServiceSpec {
	return corev1.ServiceSpec{ClusterIP: clusterIP, SessionAffinity: "ClientIP",
		SessionAffinityConfig: &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10)}},
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyLocal),
		TrafficDistribution:   ptr.To("PreferClose"),
		Ports: []corev1.ServicePort{{Name: "web", Port: 80, Protocol: "TCP", NodePort: ptr.Deref(nodePort, 0),
			AppProtocol: ptr.To("kubernetes.io/h2c")}}}
}

func TestTransforms_KeepWhatIsRead(t *testing.T) {
	t.Parallel()
	bare := metav1.ObjectMeta{Namespace: "demo", Name: "api", UID: "u", ResourceVersion: "7"}
	ours := bare
	ours.Generation = 2
	labelled := bare
	labelled.Labels = map[string]string{discoveryv1.LabelServiceName: "api"}
	conditions := discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(false)}
	ports := []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To[int32](8080),
		Protocol: ptr.To(corev1.ProtocolTCP)}}
	for name, tt := range map[string]struct {
		transform  toolscache.TransformFunc
		give, want client.Object
	}{
		"AgentEndpoint": {stripMetadata,
			&v1alpha1.AgentEndpoint{ObjectMeta: full(), Spec: v1alpha1.AgentEndpointSpec{URL: "x"}},
			&v1alpha1.AgentEndpoint{ObjectMeta: ours, Spec: v1alpha1.AgentEndpointSpec{URL: "x"}}},
		"ConfigMap": {stripMetadata, &metav1.PartialObjectMetadata{ObjectMeta: full()},
			&metav1.PartialObjectMetadata{ObjectMeta: ours}},
		"Service": {stripService, &corev1.Service{ObjectMeta: full(), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1",
			Type: "ClusterIP", IPFamilies: []corev1.IPFamily{"IPv6"}, Selector: map[string]string{"a": "b"},
			Ports: []corev1.ServicePort{{Name: "web", Port: 80, Protocol: "TCP", NodePort: 30000}}}},
			&corev1.Service{ObjectMeta: bare, Spec: corev1.ServiceSpec{Type: "ClusterIP", Selector: hasSelector,
				IPFamilies: []corev1.IPFamily{"IPv6"},
				Ports:      []corev1.ServicePort{{Name: "web", Port: 80, Protocol: "TCP"}}}}},
		"Service that is exported": {stripService,
			&corev1.Service{ObjectMeta: full(), Spec: exportedSpec("10.0.0.1", ptr.To[int32](30000))},
			&corev1.Service{ObjectMeta: bare, Spec: exportedSpec("", nil)}},
		"headless Service": {stripService,
			&corev1.Service{ObjectMeta: full(), Spec: corev1.ServiceSpec{ClusterIP: "None"}},
			&corev1.Service{ObjectMeta: bare, Spec: corev1.ServiceSpec{ClusterIP: "None"}}},
		"ServiceExport": {stripMetadata,
			&v1beta1.ServiceExport{ObjectMeta: full(), Spec: v1beta1.ServiceExportSpec{ExportedLabels: hasSelector}},
			&v1beta1.ServiceExport{ObjectMeta: ours, Spec: v1beta1.ServiceExportSpec{ExportedLabels: hasSelector}}},
		"EndpointSlice": {stripSlice, &discoveryv1.EndpointSlice{ObjectMeta: full(), AddressType: "IPv4", Ports: ports,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: conditions,
				NodeName: ptr.To("n"), TargetRef: &corev1.ObjectReference{Name: "p"}}}},
			&discoveryv1.EndpointSlice{ObjectMeta: labelled, AddressType: "IPv4", Ports: ports,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: conditions}}}},
	} {
		got, err := tt.transform(tt.give)
		if err != nil || !equality.Semantic.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
		tombstone := toolscache.DeletedFinalStateUnknown{Key: "demo/api"}
		if got, err := tt.transform(tombstone); err != nil || got != any(tombstone) {
			t.Errorf("%s: a tombstone became %v, %v", name, got, err)
		}
	}
}
