// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// TargetOptions configure the target Services.
type TargetOptions struct {
	// OrphanDelay is how long Services stay whose BoundEndpoint is gone: one that was deleted by
	// hand is re-created.
	OrphanDelay time.Duration
	// Namespaces decides which namespaces get Services.
	Namespaces namespaces.Policy
	// Services reads the Services of listed namespaces, which Client then does not cover. Nil if
	// Namespaces lists none.
	Services *namespaces.Informers
	// Role is the name of the Role and the RoleBinding that a listed namespace must have; messages
	// name it.
	Role string
	// Uninstall reports whether the operator's own namespace is being deleted, so that no target
	// Service may stay. Nil: never.
	Uninstall *namespaces.UninstallCleanup
	// Projection of namespaces without a label of their own.
	Projection v1alpha1.Projection
	// WithoutSlices is set where the installation has no right to EndpointSlices: all hostnames are
	// projected by ExternalName.
	WithoutSlices bool
}

// targetNamespaces decides whether a namespace gets Services, and in which projection.
type targetNamespaces struct {
	TargetOptions
	client client.Reader
	own    string // the operator's namespace
}

// refused returns a problem if the target namespace must not have Services.
func (t *targetNamespaces) refused(ctx context.Context, name string) *status.Problem {
	if t.Uninstall.NamespaceTerminating() {
		return status.Problemf(v1alpha1.ReasonNamespaceTerminating, "the operator's own namespace %s is being deleted",
			t.own)
	}
	reason := t.Namespaces.RefusalReason(name)
	if reason == "" && t.Namespaces.Consent != nil {
		if ns, err := t.get(ctx, name); err == nil {
			reason = t.Namespaces.MissingConsent(name, ns.Labels)
		}
	}
	if reason != "" {
		return status.Problemf(v1alpha1.ReasonNamespaceNotAllowed, "%s", reason)
	}
	return nil
}

// missing returns a problem if the target namespace does not exist or is being deleted.
// Listed namespaces cannot be read; writing there reveals it.
func (t *targetNamespaces) missing(ctx context.Context, name string) *status.Problem {
	if t.Namespaces.Listed() {
		return nil
	}
	ns, err := t.get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return status.Problemf(v1alpha1.ReasonNamespaceNotFound,
			path.NoNamespace+"; the endpoint is projected when it appears", name)
	case err != nil:
		return problemFromError(fmt.Errorf("reading namespace %s: %w", name, err))
	case ns.DeletionTimestamp != nil:
		return status.Problemf(v1alpha1.ReasonNamespaceTerminating, path.NamespaceTerminating, name)
	}
	return nil
}

// explainForbidden adds to a listed namespace's refusal what the namespace lacks. A missing
// namespace is reported as a refusal too, as the manager may not read it.
func (t *targetNamespaces) explainForbidden(namespace string, found *status.Problem) *status.Problem {
	if found == nil || !t.Namespaces.Listed() {
		return found
	}
	switch found.Reason {
	case v1alpha1.ReasonNamespaceForbidden, v1alpha1.ReasonNamespaceNotFound:
		found.Reason, found.RetryAfter = v1alpha1.ReasonNamespaceForbidden, owned.RefusalRetry
		found.Message = fmt.Sprintf(
			"namespace %s lacks the Role or RoleBinding %s, or the Role that owns our Services there (see the "+
				"chart's notes), or does not exist: %s", namespace, t.Role, found.Message)
	}
	return found
}

// projection returns how a namespace's pods reach the forwarders: as its label has it, or as the
// installation does. The labels of listed namespaces cannot be read. A label with another value has
// no effect, and ignored is that value.
func (t *targetNamespaces) projection(ctx context.Context, namespace string) (p v1alpha1.Projection, ignored string) {
	if t.WithoutSlices {
		return v1alpha1.ProjectionExternalName, ""
	}
	if t.Namespaces.Listed() {
		return t.Projection, ""
	}
	ns, err := t.get(ctx, namespace)
	if err != nil {
		return t.Projection, "" // there is no namespace to project into
	}
	label := ns.Labels[v1alpha1.LabelProjection]
	if p = v1alpha1.Projection(label); p.Valid() {
		return p, ""
	}
	return t.Projection, label
}

// get reads a Namespace's metadata from the cache.
func (t *targetNamespaces) get(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns, t.client.Get(ctx, client.ObjectKey{Name: name}, ns)
}
