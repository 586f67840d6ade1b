// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Kube is a test's client of a control plane. It knows Kubernetes's kinds, CRDs, this project's
// kinds and those of the Multi-Cluster Services API.
type Kube struct {
	client.Client
	t testing.TB
}

// NewKube returns a client for the test.
func NewKube(t testing.TB, config *rest.Config) *Kube {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		v1alpha1.AddToScheme, v1beta1.Install} {
		must.Succeed(t, add(scheme))
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	must.Succeed(t, err)
	return &Kube{Client: c, t: t}
}

// MustCreate creates objects, or ends the test.
func (k *Kube) MustCreate(objects ...client.Object) {
	k.t.Helper()
	for _, o := range objects {
		must.Succeed(k.t, k.Create(k.t.Context(), o))
	}
}

// MustDelete deletes an object, or ends the test.
func (k *Kube) MustDelete(o client.Object) {
	k.t.Helper()
	must.Succeed(k.t, k.Delete(k.t.Context(), o))
}

// CreateNamespace creates a namespace and returns its name.
func (k *Kube) CreateNamespace(prefix string) string {
	k.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	k.MustCreate(ns)
	return ns.Name
}

// CreatePod creates a pod that is ready, with the label app=NAME, and a node if there is none: the
// controller of EndpointSlices leaves out pods without one.
func (k *Kube) CreatePod(namespace, name, ip string) *corev1.Pod {
	k.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	if err := k.Create(k.t.Context(), node); err != nil && !apierrors.IsAlreadyExists(err) {
		k.t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
	k.MustCreate(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	must.Succeed(k.t, k.Status().Update(k.t.Context(), pod))
	return pod
}

// CreateService creates a Service of the pods with the label app=APP.
func (k *Kube) CreateService(namespace, name, app string, port int32) {
	k.t.Helper()
	k.MustCreate(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Port: port}}}})
}

// InstallMultiClusterKinds installs the CRDs of the Multi-Cluster Services API.
func InstallMultiClusterKinds(config *rest.Config) error {
	dir, err := repositoryDir("internal", "clusterset", "testdata", "mcs-api-v0.5.2")
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{dir}})
	return err
}
