// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// namespaceRetry is the delay before a listed namespace that refused is read again.
const namespaceRetry = 30 * time.Second

// importGroupVersion is that of ServiceImports.
var importGroupVersion = schema.GroupVersion(mcsv1beta1.GroupVersion)

// kinds are what the manager reads and writes.
func kinds() process.Kinds {
	core, rbac, ours := corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion, v1alpha1.GroupVersion
	return process.Kinds{
		Register: []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme,
			rbacv1.AddToScheme, v1alpha1.AddToScheme, mcsv1beta1.Install},
		Namespaced: []schema.GroupVersionKind{
			core.WithKind("Service"), core.WithKind("Pod"), core.WithKind("ConfigMap"),
			discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
			networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), rbac.WithKind("Role"),
			rbac.WithKind("RoleBinding"), ours.WithKind("BoundEndpoint"), ours.WithKind("KubernetesOperator"),
			ours.WithKind("EndpointAccess"), ours.WithKind("EndpointTrust"),
			importGroupVersion.WithKind(mcsv1beta1.ServiceImportKindName),
		},
		Cluster: []schema.GroupVersionKind{core.WithKind("Namespace"), rbac.WithKind("ClusterRole"),
			rbac.WithKind("ClusterRoleBinding")},
	}
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
	mgr ctrl.Manager, c client.WithWatch, o settings,
) (*namespaces.Informers, *namespaces.UninstallCleanup) {
	if !o.namespaces.Listed() {
		return nil, &namespaces.UninstallCleanup{}
	}
	log := mgr.GetLogger().WithName("namespaces")
	targets := namespaces.NewInformers(c, o.AllowNamespaces, boundendpoint.ServiceTransform(o.Installation),
		cmp.Or(o.NamespaceRetry, namespaceRetry), log)
	return targets, &namespaces.UninstallCleanup{Installation: o.Installation, Informers: targets, Client: c,
		Config: mgr.GetConfig(), Log: log}
}

func clientConfig(c *rest.Config) *rest.Config { return process.ClientConfig(c, "fairlead-operator") }
