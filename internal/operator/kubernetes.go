// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/controller/boundendpoint"
	"github.com/fairlead-dev/fairlead/internal/controller/installation"
)

// newScheme knows the kinds that the manager reads and writes.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(rbacv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// newMapper knows where those kinds are, so that nothing has to be discovered: the manager starts while the API server is away.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion, v1alpha1.GroupVersion})
	add := func(gv schema.GroupVersion, kind, singular string, scope meta.RESTScope) {
		plural := gv.WithResource(singular + "s")
		m.AddSpecific(gv.WithKind(kind), plural, gv.WithResource(singular), scope)
		m.AddSpecific(gv.WithKind(kind+"List"), plural, gv.WithResource(singular), scope)
	}
	add(corev1.SchemeGroupVersion, "Service", "service", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Namespace", "namespace", meta.RESTScopeRoot)
	add(rbacv1.SchemeGroupVersion, "ClusterRole", "clusterrole", meta.RESTScopeRoot)
	add(rbacv1.SchemeGroupVersion, "ClusterRoleBinding", "clusterrolebinding", meta.RESTScopeRoot)
	add(rbacv1.SchemeGroupVersion, "Role", "role", meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion, "BoundEndpoint", "boundendpoint", meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion, "KubernetesOperator", "kubernetesoperator", meta.RESTScopeNamespace)
	return m, nil
}

// cacheOptions: our kinds in our namespace, and one informer of all Services that keeps little of those of others.
func cacheOptions(own installation.Installation) cache.Options {
	here := map[string]cache.Config{own.Namespace: {}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.BoundEndpoint{}:      {Namespaces: here},
			&v1alpha1.KubernetesOperator{}: {Namespaces: here},
			&corev1.Service{}:              {Transform: boundendpoint.Trim(own)},
		},
	}
}

// clientConfig leaves fairness to the API server, which has priority levels for it and answers 429 with the time to come back: a limit here would only
// make the first thousands of endpoints slower than the server is.
func clientConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = -1, 0
	return rest.AddUserAgent(c, "fairlead-operator")
}
