// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// listAll lists the objects of every kind that the API server can list, but Events, with their
// metadata, for which admit returns true. Kinds that vanish meanwhile have no objects.
func (c *Cluster) listAll(
	ctx context.Context, admit func(schema.GroupVersionResource, *metav1.PartialObjectMetadata) bool,
) ([]string, error) {
	finder, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	lister, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	groups, err := finder.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	var found []string
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range group.APIResources {
			resource := version.WithResource(kind.Name)
			if kind.Kind == "Event" || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			all, err := lister.Resource(resource).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", resource, err)
			}
			for i := range all.Items {
				if o := &all.Items[i]; admit(resource, o) {
					found = append(found, fmt.Sprintf("%s %s/%s", kind.Kind, o.Namespace, o.Name))
				}
			}
		}
	}
	return found, nil
}

// owns reports whether an object is the release's: by its label, its namespace, or its name where
// it has none. What Kubernetes puts into every namespace is not.
func (r *Release) owns(resource schema.GroupVersionResource, o *metav1.PartialObjectMetadata) bool {
	own := installation.Installation{Namespace: r.Namespace, Release: r.Name}
	switch {
	case o.Labels[installation.Label] == own.ID():
		return true
	case o.Namespace == "":
		return strings.HasPrefix(o.Name, r.Namespace+".")
	case o.Namespace != r.Namespace:
		return false
	}
	return o.Name != "kube-root-ca.crt" && (resource.Resource != "serviceaccounts" || o.Name != "default")
}

// waitNothingLeft waits until there is no object of the release in the cluster, of whatever kind. It
// looks every two seconds, as listing every kind keeps the API server busy.
func (r *Release) waitNothingLeft(t testing.TB, timeout time.Duration) {
	t.Helper()
	r.c.Eventually(t, timeout, "nothing left of "+r.Namespace, func(ctx context.Context) error {
		left, err := r.c.listAll(ctx, r.owns)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d objects: %v", len(left), left[:min(len(left), 20)])
			_ = pause(ctx, 2*time.Second)
		}
		return err
	})
}

// objectsWithFinalizers returns the objects of the release that have finalizers.
func (r *Release) objectsWithFinalizers(t testing.TB) []string {
	t.Helper()
	names, err := r.c.listAll(t.Context(),
		func(resource schema.GroupVersionResource, o *metav1.PartialObjectMetadata) bool {
			return len(o.Finalizers) > 0 && r.owns(resource, o)
		})
	must.Succeed(t, err)
	return names
}

// countServices returns an error unless the release has so many Services in the cluster.
func (r *Release) countServices(ctx context.Context, want int) error {
	own := installation.Installation{Namespace: r.Namespace, Release: r.Name}
	all := &corev1.ServiceList{}
	if err := r.c.Client.List(ctx, all, client.MatchingLabels{installation.Label: own.ID()}); err != nil {
		return err
	}
	if len(all.Items) != want {
		return fmt.Errorf("%d Services of %d", len(all.Items), want)
	}
	return nil
}

// bindMany binds http://e-0.NAMESPACE and so on, as fast as the service lets an authtoken.
func bindMany(t testing.TB, session *tunnel.Session, namespace string, n int) {
	t.Helper()
	ticker := time.NewTicker(time.Second / 18) // 20 a second are allowed
	defer ticker.Stop()
	for i := range n {
		<-ticker.C
		url := fmt.Sprintf("http://e-%d.%s", i, namespace)
		if _, err := session.Bind(t.Context(),
			tunnel.Bind{URL: url, Binding: "kubernetes", UpstreamURL: "http://localhost:1",
				UpstreamProtocol: "http1"}); err != nil {
			t.Fatal(err)
		}
	}
}
