// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
)

// newScheme returns a scheme of the kinds that the exporter caches.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(v1beta1.Install(s))
	return s
}

// newMapper returns a static mapper of the kinds that the exporter reads, so that nothing has to be
// discovered: it can start while the API server is unreachable.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion,
		appsv1.SchemeGroupVersion, v1alpha1.GroupVersion, schema.GroupVersion(v1beta1.GroupVersion)})
	add := func(gv schema.GroupVersion, kind, singular string, scope meta.RESTScope) {
		plural := gv.WithResource(singular + "s")
		m.AddSpecific(gv.WithKind(kind), plural, gv.WithResource(singular), scope)
		m.AddSpecific(gv.WithKind(kind+"List"), plural, gv.WithResource(singular), scope)
	}
	add(corev1.SchemeGroupVersion, "Namespace", "namespace", meta.RESTScopeRoot)
	add(corev1.SchemeGroupVersion, "Service", "service", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "ConfigMap", "configmap", meta.RESTScopeNamespace)
	add(discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslice", meta.RESTScopeNamespace)
	add(appsv1.SchemeGroupVersion, "Deployment", "deployment", meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion, "AgentEndpoint", "agentendpoint", meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion, "CloudEndpoint", "cloudendpoint", meta.RESTScopeNamespace)
	add(schema.GroupVersion(v1beta1.GroupVersion), v1beta1.ServiceExportKindName, "serviceexport",
		meta.RESTScopeNamespace)
	for _, version := range serviceexport.PropertyVersions() {
		gv := schema.GroupVersion{Group: serviceexport.PropertyGroup, Version: version}
		m.AddSpecific(gv.WithKind(serviceexport.PropertyKind), gv.WithResource("clusterproperties"),
			gv.WithResource("clusterproperty"), meta.RESTScopeRoot)
	}
	return m, nil
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

// clientConfig disables client-side rate limits: the API server has priority levels and answers 429
// with a retry delay.
func clientConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = -1, 0
	return rest.AddUserAgent(c, "fairlead-exporter")
}
