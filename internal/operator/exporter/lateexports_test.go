// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// propertyCRD is that of ClusterProperties, as far as it matters.
func propertyCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "clusterproperties.about.k8s.io", Annotations: map[string]string{
			"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/3084"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "about.k8s.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "clusterproperties",
				Singular: "clusterproperty",
				Kind:     "ClusterProperty", ListKind: "ClusterPropertyList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true)}}}}}}
}

// TestExporter_KindsAppearLate runs an exporter in a cluster without the kinds of the Multi-Cluster
// Services API, which are installed later.
func TestExporter_KindsAppearLate(t *testing.T) {
	w := newWorld(t)
	config := testenv.Start(t)
	w.kube = testenv.NewKube(t, config)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	w.kube.MustCreate(ns)
	d := w.deployment()
	r := w.start(d, exporting, func(o *exporter.Options) { o.Kubernetes, o.ClusterID = config, "" }).ready()
	w.clusterService("hello", "hi")
	o := w.export("api", "hello")
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready") // everything else works
	wait.Until(t, "the event", func() bool {
		events := w.deploymentEvents(d)
		return len(events) == 1 && strings.Contains(events[0], "kubectl apply -f ")
	})
	if n := r.metric("fairlead_exporter_service_exports_readable"); n != 0 {
		t.Errorf("ServiceExports are readable: %v", n)
	}
	if err := testenv.InstallMultiClusterKinds(config); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	export := w.serviceExport("hello")
	w.expectExport(export, "Ready=False Failed", "create the ClusterProperty")
	t.Logf("the kind was picked up within %v", time.Since(began))

	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{propertyCRD()}}); err != nil {
		t.Fatal(err)
	}
	property := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": "a"}}}
	property.SetGroupVersionKind(schema.GroupVersionKind{Group: "about.k8s.io", Version: "v1alpha1",
		Kind: "ClusterProperty"})
	property.SetName("cluster.clusterset.k8s.io")
	w.kube.MustCreate(property)
	w.expectExport(export, "Ready=True Exported", "")
	w.expectPort("hello", "hi")
	if n := strings.Count(r.log.String(), "Services are not exported; everything else is"); n != 1 {
		t.Errorf("the missing kind was logged %d times", n)
	}
	// The kind goes, and with it every export.
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName("serviceexports." + v1beta1.GroupName)
	w.kube.MustDelete(crd)
	wait.Until(t, "the end of the export", func() bool { return len(w.records("hello")) == 0 })
	w.expectReady(o, "True Ready")
}
