// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"maps"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// AnnotationAdded lists, on a Service, the labels and annotations of ServiceMetadata that it has, so
// that those which are given no longer are taken off.
const AnnotationAdded = "bindings.fairlead.dev/added"

// ServiceMetadata is what the cluster's owner adds to the Services of hostnames.
type ServiceMetadata struct {
	Labels, Annotations map[string]string
}

// ParseServiceMetadata parses the flags --service-label and --service-annotation, KEY=VALUE each.
func ParseServiceMetadata(labels, annotations []string, c *options.Checker) ServiceMetadata {
	parse := func(flag string, texts []string, valid func(string) []string, rule string) map[string]string {
		all := map[string]string{}
		for _, text := range texts {
			key, value, found := strings.Cut(text, "=")
			switch {
			case !found || len(validation.IsQualifiedName(key)) > 0 || len(valid(value)) > 0:
				c.Reject(flag, text, rule)
			case reserved(key):
				c.Reject(flag, text, "choose another key: the operator or kube-proxy gives this one a meaning")
			}
			all[key] = value
		}
		return all
	}
	return ServiceMetadata{
		Labels: parse("--service-label", labels, validation.IsValidLabelValue,
			"give KEY=VALUE of a label: a value has at most 63 letters, digits, '-', '_' and '.'"),
		Annotations: parse("--service-annotation", annotations, func(string) []string { return nil },
			"give KEY=VALUE of an annotation"),
	}
}

// reserved reports whether a key of a label or annotation is ours, or changes what kube-proxy does.
func reserved(key string) bool {
	return strings.HasPrefix(key, "bindings.fairlead.dev/") || key == managedByLabel ||
		key == "service.kubernetes.io/headless" || key == "service.kubernetes.io/service-proxy-name"
}

// LabelKeys are the keys of labels that endpoints may ask for on their Services: names, and
// beginnings with a * at the end. A beginning has the domain of the keys, or they have none.
type LabelKeys []string

// Check checks the flag.
func (k LabelKeys) Check(c *options.Checker) {
	for _, key := range k {
		if len(validation.IsQualifiedName(strings.Replace(key, "*", "x", 1))) > 0 ||
			strings.Contains(strings.TrimSuffix(key, "*"), "*") {
			c.Reject("--endpoint-labels", key, "give the key of a label, or a beginning such as example.com/*")
		}
	}
}

// Admits reports whether endpoints may ask for a label.
func (k LabelKeys) Admits(key string) bool {
	return !reserved(key) && slices.ContainsFunc(k, func(pattern string) bool {
		matches, _ := path.Match(pattern, key) // in which * is no "/"
		return matches
	})
}

// Add adds the labels, and where it is a Service that pods name the annotations, and records them.
func (m ServiceMetadata) Add(o metav1.Object, target bool) {
	var added []string
	add := func(kind string, to, more map[string]string) map[string]string {
		if to == nil {
			to = map[string]string{}
		}
		for _, key := range slices.Sorted(maps.Keys(more)) {
			to[key], added = more[key], append(added, kind+key)
		}
		return to
	}
	o.SetLabels(add(addedLabel, o.GetLabels(), m.Labels))
	if target {
		o.SetAnnotations(add(addedAnnotation, o.GetAnnotations(), m.Annotations))
	}
	if len(added) > 0 {
		o.SetAnnotations(add("", o.GetAnnotations(), map[string]string{AnnotationAdded: strings.Join(added, ",")}))
	}
}

// How AnnotationAdded begins its entries.
const (
	addedLabel      = "label:"
	addedAnnotation = "annotation:"
)

// RemoveAdded takes off what AnnotationAdded lists.
func RemoveAdded(o metav1.Object) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	for entry := range strings.SplitSeq(annotations[AnnotationAdded], ",") {
		if key, ok := strings.CutPrefix(entry, addedLabel); ok {
			delete(labels, key)
		} else if key, ok := strings.CutPrefix(entry, addedAnnotation); ok {
			delete(annotations, key)
		}
	}
	delete(annotations, AnnotationAdded)
}
