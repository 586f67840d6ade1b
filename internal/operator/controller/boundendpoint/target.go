// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// ensureTarget makes the target Service, or returns what prevents it.
func (r *Reconciler) ensureTarget(
	ctx context.Context, b *v1alpha1.BoundEndpoint, desired *corev1.Service,
) (*corev1.Service, *problem) {
	if found := r.namespaceMissing(ctx, b.Spec.Namespace); found != nil {
		return nil, found
	}
	owners, err := r.Anchors.TargetOwners(ctx, b.Spec.Namespace)
	if err != nil {
		return nil, r.explainForbidden(b.Spec.Namespace, problemFromError(err))
	}
	desired.OwnerReferences = owners
	made, found := r.ensure(ctx, b, desired)
	return made, r.explainForbidden(b.Spec.Namespace, found)
}

// namespaceRefused returns a problem if the target namespace must not have Services.
func (r *Reconciler) namespaceRefused(ctx context.Context, name string) *problem {
	if r.terminating() {
		return namespaceProblem(v1alpha1.ReasonNamespaceTerminating, "the operator's own namespace %s is being deleted",
			r.Layout.Installation.Namespace)
	}
	reason := r.Namespaces.RefusalReason(name)
	if reason == "" && r.Namespaces.Consent != nil {
		if ns, err := r.getNamespace(ctx, name); err == nil {
			reason = r.Namespaces.MissingConsent(name, ns.Labels)
		}
	}
	if reason != "" {
		return namespaceProblem(v1alpha1.ReasonNamespaceNotAllowed, "%s", reason)
	}
	return nil
}

// namespaceMissing returns a problem if the target namespace does not exist or is being deleted.
// Listed namespaces cannot be read; writing there reveals it.
func (r *Reconciler) namespaceMissing(ctx context.Context, name string) *problem {
	if r.Namespaces.Listed() {
		return nil
	}
	ns, err := r.getNamespace(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return namespaceProblem(v1alpha1.ReasonNamespaceNotFound,
			"namespace %s does not exist; the endpoint is projected when it appears", name)
	case err != nil:
		return problemFromError(fmt.Errorf("reading namespace %s: %w", name, err))
	case ns.DeletionTimestamp != nil:
		return namespaceProblem(v1alpha1.ReasonNamespaceTerminating, "namespace %s is being deleted", name)
	}
	return nil
}

// getNamespace reads a Namespace's metadata from the cache.
func (r *Reconciler) getNamespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns, r.Client.Get(ctx, client.ObjectKey{Name: name}, ns)
}

// explainForbidden adds to a listed namespace's refusal what the namespace lacks. A missing
// namespace is reported as a refusal too, as the manager may not read it.
func (r *Reconciler) explainForbidden(namespace string, found *problem) *problem {
	if found == nil || !r.Namespaces.Listed() {
		return found
	}
	switch found.reason {
	case v1alpha1.ReasonNamespaceForbidden, v1alpha1.ReasonNamespaceNotFound:
		found.reason, found.retryAfter = v1alpha1.ReasonNamespaceForbidden, refusalRetry
		found.message = fmt.Sprintf(
			"namespace %s lacks the Role or RoleBinding %s, or the Role that owns our Services there (see the "+
				"chart's notes), or does not exist: %s",
			namespace, r.TargetRole, found.message)
	}
	return found
}

func (r *Reconciler) terminating() bool {
	return r.Uninstall != nil && r.Uninstall.NamespaceTerminating()
}

// getService reads a Service from the cache that holds it. One that the cache lacks although it was
// created is read from the API server: the cache may be stale.
func (r *Reconciler) getService(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	err := r.getCachedService(ctx, key, into)
	if _, created := r.createdServices.Load(key); !created {
		return err
	}
	if apierrors.IsNotFound(err) {
		err = r.getLiveService(ctx, key, into)
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	r.createdServices.Delete(key) // the cache has it, or it is gone
	return err
}

func (r *Reconciler) getCachedService(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	if r.Targets == nil || key.Namespace == r.Layout.Installation.Namespace {
		return r.Client.Get(ctx, key, into)
	}
	if r.Targets.Contains(key.Namespace) {
		return r.Targets.Get(key, into)
	}
	return r.getLiveService(ctx, key, into) // the namespace was listed once
}

// getLiveService reads a Service from the API server. Without the rights to read it, the Service
// counts as gone: it is deleted with its owner.
func (r *Reconciler) getLiveService(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	err := r.Live.Get(ctx, key, into)
	if apierrors.IsForbidden(err) {
		return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
	}
	return err
}
