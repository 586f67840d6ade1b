// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestInstallation_OwnsByLabelAndPlace(t *testing.T) {
	t.Parallel()
	own := Installation{Namespace: "fairlead", Release: "blue"}
	service := func() *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api",
			Labels: map[string]string{"a": "b"}}}
		own.Mark(s)
		return s
	}
	earlier := service()
	delete(earlier.Annotations, AnnotationChecksum)
	if !own.Owns(earlier) {
		t.Error("an object of an earlier version is not ours")
	}
	if s := service(); !own.Owns(s) || s.Labels["a"] != "b" {
		t.Errorf("marked: %+v", s)
	}
	for name, change := range map[string]func(*corev1.Service){
		"no label": func(s *corev1.Service) { delete(s.Labels, Label) },
		"no place": func(s *corev1.Service) { delete(s.Annotations, AnnotationPlace) },
		"copied to a namespace, and its place edited": func(s *corev1.Service) {
			s.Namespace, s.Annotations[AnnotationPlace] = "other", "other/api"
		},
		"copied to a namespace": func(s *corev1.Service) { s.Namespace = "other" },
		"copied under a name":   func(s *corev1.Service) { s.Name = "other" },
		"another installation's": func(s *corev1.Service) {
			Installation{Namespace: "fairlead", Release: "green"}.Mark(s)
		},
		"made by hand": func(s *corev1.Service) { s.Labels, s.Annotations = nil, nil },
	} {
		s := service()
		change(s)
		if own.Owns(s) {
			t.Errorf("%s: ours", name)
		}
	}
}

func TestInstallation_ID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, i := range []Installation{{"a", "b"}, {"a", "c"}, {"c", "b"}, {"ab", ""}} {
		if errs := validation.IsValidLabelValue(i.ID()); len(errs) > 0 || seen[i.ID()] {
			t.Errorf("%v: %q, %v", i, i.ID(), errs)
		}
		seen[i.ID()] = true
	}
}
