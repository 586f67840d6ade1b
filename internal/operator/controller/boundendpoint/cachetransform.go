// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"maps"
	"slices"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
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
		intern(&b.Spec.Ports[i].Scheme, (*string)(&b.Spec.Ports[i].State))
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
