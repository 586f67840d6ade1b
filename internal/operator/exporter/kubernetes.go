// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
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
