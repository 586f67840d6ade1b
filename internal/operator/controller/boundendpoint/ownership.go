// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// isOurs reports whether a Service at the name of one of the hostname's Services belongs to this
// installation and to the hostname.
func (r *Reconciler) isOurs(s *corev1.Service, b *v1alpha1.BoundEndpoint) bool {
	installation := r.Layout.Installation
	if slices.Contains(b.Status.Services, serviceRef(s)) {
		return installation.Marked(s)
	}
	hostname := serviceHostname(installation, s)
	return installation.Owns(s) && (hostname == b.Name || hostname == "") && !slices.ContainsFunc(s.OwnerReferences,
		r.notAnchor)
}

// provablyOurs reports whether a Service whose UID is not recorded may be deleted: besides the
// marks, its only owners are our anchors.
func (r *Reconciler) provablyOurs(s *corev1.Service) bool {
	return r.Layout.Installation.Owns(s) && len(s.OwnerReferences) > 0 &&
		!slices.ContainsFunc(s.OwnerReferences, r.notAnchor)
}

// notAnchor reports whether the owner is none of our anchors. It ignores the UID: an installation
// adopts what an earlier one left.
func (r *Reconciler) notAnchor(owner metav1.OwnerReference) bool {
	return owner.APIVersion != rbacv1.SchemeGroupVersion.String() || !slices.Contains(r.Layout.Anchors, owner.Name)
}

// describeOwner describes the owner of a foreign Service for a message.
func (r *Reconciler) describeOwner(s *corev1.Service) string {
	i := slices.IndexFunc(s.OwnerReferences, r.notAnchor)
	if i >= 0 && r.Layout.Installation.Owns(s) {
		return strings.ToLower(s.OwnerReferences[i].Kind) + " " + s.OwnerReferences[i].Name
	}
	return describeOwner(r.Layout.Installation, s)
}

// serviceHostname returns the hostname that a Service of ours belongs to: the name and namespace of
// a target Service, the annotation of an upstream Service.
func serviceHostname(own installation.Installation, service client.Object) string {
	if service.GetNamespace() == own.Namespace {
		return service.GetAnnotations()[installation.AnnotationHostname]
	}
	return service.GetName() + "." + service.GetNamespace()
}

// owned lists, from the caches, the Services that belong to the hostname and may be deleted: those
// provably ours and those recorded in the status. With an error it returns what it found so far.
func (r *Reconciler) owned(
	ctx context.Context, hostname string, recorded []v1alpha1.ServiceRef,
) ([]corev1.Service, error) {
	var list corev1.ServiceList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexHostname: hostname}); err != nil {
		return nil, fmt.Errorf("listing the Services of %s: %w", hostname, err)
	}
	all := slices.DeleteFunc(list.Items, func(s corev1.Service) bool {
		return !r.provablyOurs(&s) || r.upstreamOfOther(ctx, &s, hostname)
	})
	var errs []error
	if name, namespace, _ := strings.Cut(hostname, "."); r.Targets != nil && r.Targets.Contains(namespace) {
		s := corev1.Service{}
		err := r.Targets.Get(client.ObjectKey{Namespace: namespace, Name: name}, &s)
		if err == nil && r.provablyOurs(&s) {
			all = append(all, s)
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	for _, ref := range recorded {
		if slices.ContainsFunc(all, func(s corev1.Service) bool { return s.UID == ref.UID }) {
			continue
		}
		s := corev1.Service{}
		err := r.getService(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &s)
		if err == nil && s.UID == ref.UID && r.Layout.Installation.Marked(&s) {
			all = append(all, s)
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return all, errors.Join(errs...)
}

// upstreamOfOther reports whether the Service has the name of another hostname's upstream Service,
// regardless of its annotation.
func (r *Reconciler) upstreamOfOther(ctx context.Context, s *corev1.Service, hostname string) bool {
	if s.Namespace != r.Layout.Installation.Namespace {
		return false
	}
	for _, request := range r.requestsByIndex(ctx, indexUpstream, s.Name) {
		if request.Name != hostname {
			return true
		}
	}
	return false
}

func serviceRef(s *corev1.Service) v1alpha1.ServiceRef {
	return v1alpha1.ServiceRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// serviceRefs returns the reference of the made Service or, if it could not be made or checked, the
// recorded one.
func serviceRefs(b *v1alpha1.BoundEndpoint, desired, existing *corev1.Service) []v1alpha1.ServiceRef {
	if existing != nil {
		return []v1alpha1.ServiceRef{serviceRef(existing)}
	}
	var recorded []v1alpha1.ServiceRef
	for _, ref := range b.Status.Services {
		if ref.Namespace == desired.Namespace && ref.Name == desired.Name {
			recorded = append(recorded, ref)
		}
	}
	return recorded
}
