// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// kinds are what the exporter reads, and writes the status of.
func kinds() process.Kinds {
	core, ours := corev1.SchemeGroupVersion, v1alpha1.GroupVersion
	k := process.Kinds{
		Register: []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme,
			v1beta1.Install},
		Namespaced: []schema.GroupVersionKind{
			core.WithKind("Service"), core.WithKind("ConfigMap"),
			discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
			ours.WithKind("AgentEndpoint"), ours.WithKind("CloudEndpoint"),
			schema.GroupVersion(v1beta1.GroupVersion).WithKind(v1beta1.ServiceExportKindName),
		},
		Cluster: []schema.GroupVersionKind{core.WithKind("Namespace")},
	}
	for _, version := range serviceexport.PropertyVersions() {
		k.Cluster = append(k.Cluster, schema.GroupVersionKind{Group: serviceexport.PropertyGroup, Version: version,
			Kind: serviceexport.PropertyKind})
	}
	return k
}

// cacheOptions configures the cache: objects of all namespaces, or of the listed ones, without what
// the exporter does not read.
func cacheOptions(namespaces []string) cache.Options {
	o := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.AgentEndpoint{}:    {Transform: stripMetadata},
			&v1alpha1.CloudEndpoint{}:    {Transform: stripMetadata},
			&v1beta1.ServiceExport{}:     {Transform: stripMetadata},
			&corev1.ConfigMap{}:          {Transform: stripMetadata},
			&corev1.Service{}:            {Transform: stripService},
			&discoveryv1.EndpointSlice{}: {Transform: stripSlice},
		},
	}
	for _, namespace := range namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[namespace] = cache.Config{}
	}
	return o
}

func clientConfig(c *rest.Config) *rest.Config { return process.ClientConfig(c, "fairlead-exporter") }

// The transforms keep of cached objects what the exporter reads. A cluster has many more Services
// and EndpointSlices than are exported.

// stripMetadata removes from an AgentEndpoint, a CloudEndpoint, a ServiceExport, or the metadata of a
// ConfigMap what their users write, but for AnnotationSealed. A write of a status does not change that.
func stripMetadata(o any) (any, error) {
	if object, ok := o.(metav1.Object); ok { // else a tombstone
		object.SetManagedFields(nil)
		value, isSealed := object.GetAnnotations()[serviceexport.AnnotationSealed]
		object.SetAnnotations(nil)
		if isSealed {
			object.SetAnnotations(map[string]string{serviceexport.AnnotationSealed: shared(value)})
		}
		object.SetLabels(nil)
		object.SetOwnerReferences(nil)
	}
	return o, nil
}

// hasSelector stands for every selector in the cache.
var hasSelector = map[string]string{"": ""}

func stripService(o any) (any, error) {
	s, ok := o.(*corev1.Service)
	if !ok {
		return o, nil
	}
	kept := &corev1.Service{ObjectMeta: identity(&s.ObjectMeta),
		Spec: corev1.ServiceSpec{Type: corev1.ServiceType(shared(string(s.Spec.Type))),
			SessionAffinity: corev1.ServiceAffinity(shared(string(s.Spec.SessionAffinity)))}}
	if s.Spec.ClusterIP == corev1.ClusterIPNone { // an address does not matter
		kept.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		kept.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(*c.ClientIP.TimeoutSeconds)}}
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		kept.Spec.InternalTrafficPolicy = sharedPointer(*p)
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		kept.Spec.TrafficDistribution = sharedPointer(*d)
	}
	if len(s.Spec.Selector) > 0 { // that it has one is all that matters
		kept.Spec.Selector = hasSelector
	}
	for _, family := range s.Spec.IPFamilies {
		kept.Spec.IPFamilies = append(kept.Spec.IPFamilies, corev1.IPFamily(shared(string(family))))
	}
	for _, p := range s.Spec.Ports {
		port := corev1.ServicePort{Name: shared(p.Name), Port: p.Port,
			Protocol: corev1.Protocol(shared(string(p.Protocol)))}
		if p.AppProtocol != nil {
			port.AppProtocol = sharedPointer(*p.AppProtocol)
		}
		kept.Spec.Ports = append(kept.Spec.Ports, port)
	}
	return kept, nil
}

func stripSlice(o any) (any, error) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return o, nil
	}
	kept := &discoveryv1.EndpointSlice{ObjectMeta: identity(&s.ObjectMeta),
		AddressType: discoveryv1.AddressType(shared(string(s.AddressType)))}
	if name := upstream.ServiceOf(s); name != "" {
		kept.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		if by := s.Labels[discoveryv1.LabelManagedBy]; by == upstream.SliceController {
			kept.Labels[discoveryv1.LabelManagedBy] = upstream.SliceController
		}
	}
	for _, p := range s.Ports {
		port := discoveryv1.EndpointPort{Port: p.Port}
		if p.Name != nil {
			port.Name = new(shared(*p.Name))
		}
		if p.Protocol != nil {
			port.Protocol = new(corev1.Protocol(shared(string(*p.Protocol))))
		}
		kept.Ports = append(kept.Ports, port)
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		kept.Endpoints = append(kept.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Hostname: e.Hostname,
			Conditions: discoveryv1.EndpointConditions{Ready: sharedBool(e.Conditions.Ready),
				Serving: sharedBool(e.Conditions.Serving), Terminating: sharedBool(e.Conditions.Terminating)}})
	}
	return kept, nil
}

// identity returns the metadata of a cached object.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: shared(m.Namespace), Name: m.Name, UID: m.UID,
		ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp}
}

// shared returns a copy of the text that all equal texts share.
func shared(text string) string { return unique.Make(text).Value() }

// sharedPointer returns a pointer to a shared copy of the text.
func sharedPointer[T ~string](text T) *T { return new(T(shared(string(text)))) }

var isTrue, isFalse = true, false

func sharedBool(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &isTrue
	}
	return &isFalse
}
