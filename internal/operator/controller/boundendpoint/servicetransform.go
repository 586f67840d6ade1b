// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

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
