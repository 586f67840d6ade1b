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

// project makes the target Service, or says what about it or its namespace is in the way.
func (r *Reconciler) project(
	ctx context.Context, b *v1alpha1.BoundEndpoint, desired *corev1.Service,
) (*corev1.Service, *problem) {
	if found := r.namespace(ctx, b.Spec.Namespace); found != nil {
		return nil, found
	}
	owner, err := r.TargetOwner(ctx, b.Spec.Namespace)
	if err != nil {
		return nil, r.explained(b.Spec.Namespace, problemOf(err))
	}
	desired.OwnerReferences = []metav1.OwnerReference{owner}
	made, found := r.ensure(ctx, b, desired)
	return made, r.explained(b.Spec.Namespace, found)
}

// refused says whether the target namespace gets no Services, or none any longer.
func (r *Reconciler) refused(ctx context.Context, name string) *problem {
	if r.ending() {
		return namespaceProblem(v1alpha1.ReasonNamespaceTerminating, "the operator's own namespace %s is being deleted",
			r.Layout.Installation.Namespace)
	}
	why := r.Namespaces.Refuses(name)
	if why == "" && r.Namespaces.Consent != nil {
		if ns, err := r.read(ctx, name); err == nil {
			why = r.Namespaces.Withheld(name, ns.Labels)
		}
	}
	if why != "" {
		return namespaceProblem(v1alpha1.ReasonNamespaceNotAllowed, "%s", why)
	}
	return nil
}

// namespace says what about the target namespace is in the way. Of listed namespaces only what is
// written there will tell.
func (r *Reconciler) namespace(ctx context.Context, name string) *problem {
	if r.Namespaces.Listed() {
		return nil
	}
	ns, err := r.read(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return namespaceProblem(v1alpha1.ReasonNamespaceNotFound,
			"namespace %s does not exist; the endpoint is projected when it appears", name)
	case err != nil:
		return problemOf(fmt.Errorf("reading namespace %s: %w", name, err))
	case ns.DeletionTimestamp != nil:
		return namespaceProblem(v1alpha1.ReasonNamespaceTerminating, "namespace %s is being deleted", name)
	}
	return nil
}

// read reads a Namespace's metadata from the cache.
func (r *Reconciler) read(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns, r.Client.Get(ctx, client.ObjectKey{Name: name}, ns)
}

// explained adds to a listed namespace's refusal what it lacks. That such a namespace does not
// exist is a refusal too: nobody may ask.
func (r *Reconciler) explained(namespace string, found *problem) *problem {
	if found == nil || !r.Namespaces.Listed() {
		return found
	}
	switch found.reason {
	case v1alpha1.ReasonNamespaceForbidden, v1alpha1.ReasonNamespaceNotFound:
		found.reason, found.after = v1alpha1.ReasonNamespaceForbidden, retry
		found.message = fmt.Sprintf(
			"namespace %s lacks the Role or RoleBinding %s, or the Role that owns our Services there (the chart's notes tell "+
				"how to make them), or does not exist: %s",
			namespace, r.TargetRole, found.message)
	}
	return found
}

func (r *Reconciler) ending() bool { return r.Ending != nil && r.Ending() }

// service reads a Service from the cache that has it.
func (r *Reconciler) service(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	if r.Targets == nil || key.Namespace == r.Layout.Installation.Namespace {
		return r.Client.Get(ctx, key, into)
	}
	if r.Targets.Has(key.Namespace) {
		return r.Targets.Get(key, into)
	}
	// It was listed once. Where the rights went with the list, the Service goes with its owner, and is
	// nothing of ours to know.
	err := r.Live.Get(ctx, key, into)
	if apierrors.IsForbidden(err) {
		return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
	}
	return err
}
