// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
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
func (w *serviceWriter) isOurs(s *corev1.Service, b *v1alpha1.BoundEndpoint) bool {
	if slices.Contains(b.Status.Services, serviceRef(s)) {
		return w.own.Marked(s)
	}
	hostname := serviceHostname(w.own, s)
	return w.own.Owns(s) && (hostname == b.Name || hostname == "") && !slices.ContainsFunc(s.OwnerReferences,
		w.notAnchor)
}

// hasProjection reports whether the Service is the hostname's, and as its status describes it.
func (w *serviceWriter) hasProjection(s *corev1.Service, b *v1alpha1.BoundEndpoint) bool {
	want := corev1.ServiceTypeExternalName
	if recordedProjection(b) == v1alpha1.ProjectionEndpointSlice {
		want = corev1.ServiceTypeClusterIP
	}
	return w.isOurs(s, b) && s.DeletionTimestamp == nil && s.Spec.Type == want && !headless(s)
}

// provablyOurs reports whether a Service whose UID is not recorded may be deleted: besides the
// marks, its only owners are our anchors.
func (w *serviceWriter) provablyOurs(s *corev1.Service) bool {
	return w.own.Owns(s) && len(s.OwnerReferences) > 0 && !slices.ContainsFunc(s.OwnerReferences, w.notAnchor)
}

// notAnchor reports whether the owner is none of our anchors. It ignores the UID: an installation
// adopts what an earlier one left.
func (w *serviceWriter) notAnchor(owner metav1.OwnerReference) bool {
	return owner.APIVersion != rbacv1.SchemeGroupVersion.String() || !slices.Contains(w.anchors, owner.Name)
}

// describeOwner describes the owner of a foreign Service for a message.
func (w *serviceWriter) describeOwner(s *corev1.Service) string {
	i := slices.IndexFunc(s.OwnerReferences, w.notAnchor)
	if i >= 0 && w.own.Owns(s) {
		return strings.ToLower(s.OwnerReferences[i].Kind) + " " + s.OwnerReferences[i].Name
	}
	return describeOwner(w.own, s)
}

// serviceHostname returns the hostname that a Service of ours belongs to: the name and namespace of
// a target Service, the annotation of an upstream Service.
func serviceHostname(own installation.Installation, service client.Object) string {
	if service.GetNamespace() == own.Namespace {
		return service.GetAnnotations()[installation.AnnotationHostname]
	}
	return service.GetName() + "." + service.GetNamespace()
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
	return slices.DeleteFunc(slices.Clone(b.Status.Services), func(ref v1alpha1.ServiceRef) bool {
		return ref.Namespace != desired.Namespace || ref.Name != desired.Name
	})
}
