// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/boundendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
)

// namespaceRetry is the delay before a listed namespace that refused is read again.
const namespaceRetry = 30 * time.Second

// importGroupVersion is that of ServiceImports.
var importGroupVersion = schema.GroupVersion(mcsv1beta1.GroupVersion)

// newScheme returns a scheme of the kinds that the manager reads and writes.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(networkingv1.AddToScheme(s))
	utilruntime.Must(rbacv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(mcsv1beta1.Install(s))
	return s
}

// newMapper returns a static mapper of those kinds, so that nothing has to be discovered: the
// manager can start while the API server is unreachable.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion,
		networkingv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion, v1alpha1.GroupVersion, importGroupVersion})
	addPlural := func(gv schema.GroupVersion, kind, singular, plural string, scope meta.RESTScope) {
		m.AddSpecific(gv.WithKind(kind), gv.WithResource(plural), gv.WithResource(singular), scope)
		m.AddSpecific(gv.WithKind(kind+"List"), gv.WithResource(plural), gv.WithResource(singular), scope)
	}
	add := func(gv schema.GroupVersion, kind, singular string, scope meta.RESTScope) {
		addPlural(gv, kind, singular, singular+"s", scope)
	}
	add(corev1.SchemeGroupVersion, "Service", "service", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Namespace", "namespace", meta.RESTScopeRoot)
	add(corev1.SchemeGroupVersion, "Pod", "pod", meta.RESTScopeNamespace)
	add(discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslice", meta.RESTScopeNamespace)
	addPlural(networkingv1.SchemeGroupVersion, "NetworkPolicy", "networkpolicy", "networkpolicies",
		meta.RESTScopeNamespace)
	add(rbacv1.SchemeGroupVersion, "ClusterRole", "clusterrole", meta.RESTScopeRoot)
	add(rbacv1.SchemeGroupVersion, "ClusterRoleBinding", "clusterrolebinding", meta.RESTScopeRoot)
	add(rbacv1.SchemeGroupVersion, "Role", "role", meta.RESTScopeNamespace)
	add(rbacv1.SchemeGroupVersion, "RoleBinding", "rolebinding", meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion, "BoundEndpoint", "boundendpoint", meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion, "KubernetesOperator", "kubernetesoperator", meta.RESTScopeNamespace)
	addPlural(v1alpha1.GroupVersion, "EndpointAccess", "endpointaccess", "endpointaccesses", meta.RESTScopeNamespace)
	add(importGroupVersion, mcsv1beta1.ServiceImportKindName, "serviceimport", meta.RESTScopeNamespace)
	return m, nil
}

// cacheOptions configures the cache: our kinds in our namespace, one informer of all Services that
// keeps little of those of others, and our own EndpointSlices and NetworkPolicies. With listed namespaces it holds only
// the Services of our namespace, as there are no rights to read the others, and no slices. It never
// holds ServiceImports: without their CRD it would not be filled. failed is told of watches that fail.
func cacheOptions(
	own installation.Installation, policy namespaces.Policy, failed toolscache.WatchErrorHandlerWithContext,
) cache.Options {
	here := map[string]cache.Config{own.Namespace: {}}
	services := cache.ByObject{Transform: boundendpoint.ServiceTransform(own)}
	if policy.Listed() {
		services.Namespaces = here
	}
	return cache.Options{
		DefaultWatchErrorHandler: failed,

		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.BoundEndpoint{}:      {Namespaces: here, Transform: boundendpoint.CacheTransform()},
			&v1alpha1.KubernetesOperator{}: {Namespaces: here},
			&corev1.Service{}:              services,
			&discoveryv1.EndpointSlice{}:   {Label: own.SliceSelector().AsSelector()},
			&networkingv1.NetworkPolicy{}:  {Namespaces: here, Label: own.Selector().AsSelector()},
		},
	}
}

// newTargetInformers returns the informers of listed namespaces, nil if none are listed, and what
// deletes the Services there when our own namespace is deleted.
func newTargetInformers(
	mgr ctrl.Manager, c client.WithWatch, own installation.Installation, policy namespaces.Policy, retry time.Duration,
) (*namespaces.Informers, *namespaces.UninstallCleanup) {
	if !policy.Listed() {
		return nil, &namespaces.UninstallCleanup{}
	}
	log := mgr.GetLogger().WithName("namespaces")
	targets := namespaces.NewInformers(c, policy.Allow, boundendpoint.ServiceTransform(own),
		cmp.Or(retry, namespaceRetry), log)
	return targets, &namespaces.UninstallCleanup{Installation: own, Informers: targets, Client: c,
		Config: mgr.GetConfig(),
		Log:    log}
}

// clientConfig disables client-side rate limits: the API server has priority levels and answers 429
// with a retry delay; a limit here would only delay the first thousands of endpoints.
func clientConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = -1, 0
	return rest.AddUserAgent(c, "fairlead-operator")
}
