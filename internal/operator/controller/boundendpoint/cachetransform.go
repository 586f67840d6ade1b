// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// interner reduces the memory of cached objects. In a large cluster nearly all of them have the
// same labels, owners, selectors and condition messages, and decoding gives each its own copy and
// oversized slices. Cached objects are read only, so they can share one copy. It is safe for
// concurrent use.
type interner struct {
	mu               sync.Mutex
	labels, selector map[string]string // the last ones
	owners           []metav1.OwnerReference
}

// CacheTransform returns a cache transform that removes managedFields and shares equal
// strings.
func CacheTransform() toolscache.TransformFunc {
	c := &interner{}
	return func(o any) (any, error) {
		b, ok := o.(*v1alpha1.BoundEndpoint)
		if !ok {
			return o, nil // a tombstone
		}
		return c.boundEndpoint(b), nil
	}
}

func (c *interner) boundEndpoint(b *v1alpha1.BoundEndpoint) *v1alpha1.BoundEndpoint {
	b.ManagedFields = nil
	b = b.DeepCopy() // with slices of exact size
	c.metadata(&b.ObjectMeta)
	intern(&b.APIVersion, &b.Kind, &b.Spec.Namespace, &b.Spec.Cluster, &b.Status.Forwarders)
	for i := range b.Spec.Ports {
		intern(&b.Spec.Ports[i].Scheme, &b.Spec.Ports[i].AppProtocol, (*string)(&b.Spec.Ports[i].State))
	}
	for i := range b.Status.Conditions {
		k := &b.Status.Conditions[i]
		intern(&k.Type, (*string)(&k.Status), &k.Reason, &k.Message)
	}
	for i := range b.Status.Services {
		intern(&b.Status.Services[i].Namespace)
	}
	return b
}

func (c *interner) service(s *corev1.Service) *corev1.Service {
	s.ManagedFields = nil
	s = s.DeepCopy()
	c.metadata(&s.ObjectMeta)
	c.mu.Lock()
	c.selector = reuseMap(s.Spec.Selector, c.selector)
	s.Spec.Selector = c.selector
	c.mu.Unlock()
	return s
}

func (c *interner) metadata(m *metav1.ObjectMeta) {
	intern(&m.Namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.labels = reuseMap(m.Labels, c.labels)
	m.Labels = c.labels
	if !slices.EqualFunc(m.OwnerReferences, c.owners, equalOwner) {
		c.owners = m.OwnerReferences
	}
	m.OwnerReferences = c.owners
	if len(m.Annotations) > 0 {
		m.Annotations = internKeys(m.Annotations)
	}
}

// reuseMap returns last if m equals it, otherwise m.
func reuseMap(m, last map[string]string) map[string]string {
	if maps.Equal(m, last) && (m == nil) == (last == nil) {
		return last
	}
	return m
}

func equalOwner(a, b metav1.OwnerReference) bool {
	same := func(a, b *bool) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		same(a.Controller, b.Controller) && same(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

func internKeys(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[unique.Make(k).Value()] = v
	}
	return out
}

// intern replaces strings by a shared copy.
func intern(texts ...*string) {
	for _, t := range texts {
		*t = unique.Make(*t).Value()
	}
}

const (
	helmName      = "meta.helm.sh/release-name"
	helmNamespace = "meta.helm.sh/release-namespace"
	managedBy     = "app.kubernetes.io/managed-by"
)

// ServiceTransform returns a cache transform for Services. Of Services without a mark of this
// installation it keeps only what a conflict message names, so that the cache of a large cluster
// stays small; of others it removes only managedFields.
func ServiceTransform(own installation.Installation) toolscache.TransformFunc {
	c := &interner{}
	return func(o any) (any, error) {
		s, ok := o.(*corev1.Service)
		if !ok {
			return o, nil // a tombstone
		}
		if own.Marked(s) {
			return c.service(s), nil
		}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
			DeletionTimestamp: s.DeletionTimestamp,
			Labels:            selectKeys(s.Labels, managedBy, installation.Label),
			Annotations: selectKeys(s.Annotations, helmName, helmNamespace, installation.AnnotationInstallation,
				installation.AnnotationPlace),
			OwnerReferences: s.OwnerReferences,
			ManagedFields:   firstFieldManager(s.ManagedFields),
		}}, nil
	}
}

func selectKeys(m map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, k := range keys {
		if v, ok := m[k]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[k] = v
		}
	}
	return kept
}

func firstFieldManager(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	if len(fields) == 0 {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Manager: fields[0].Manager}}
}

// describeOwner describes a Service's owner for a message, as far as the Service reveals it.
func describeOwner(own installation.Installation, s *corev1.Service) string {
	switch {
	case own.Copied(s):
		return "another owner, who copied it from a Service of this installation"
	case s.Annotations[installation.AnnotationHostname] != "":
		return "this installation's " + s.Annotations[installation.AnnotationHostname]
	case s.Annotations[installation.AnnotationInstallation] != "" &&
		s.Annotations[installation.AnnotationPlace] == s.Namespace+"/"+s.Name:
		return "the Fairlead installation " + s.Annotations[installation.AnnotationInstallation]
	case s.Annotations[helmName] != "":
		return fmt.Sprintf("the Helm release %s/%s", s.Annotations[helmNamespace], s.Annotations[helmName])
	case len(s.OwnerReferences) > 0:
		return strings.ToLower(s.OwnerReferences[0].Kind) + " " + s.OwnerReferences[0].Name
	case s.Labels[managedBy] != "" && s.Labels[installation.Label] == "":
		return s.Labels[managedBy]
	case len(s.ManagedFields) > 0:
		return "another owner, who made it with " + s.ManagedFields[0].Manager
	}
	return "another owner"
}
