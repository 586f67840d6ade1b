// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations select the annotations of pods to keep: names, and prefixes that end in "*". Empty
// selects none.
type Annotations []string

// Invalid returns the elements that are neither the name of an annotation nor a prefix of one.
func (a Annotations) Invalid() (invalid []string) {
	for _, name := range a {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		if isPrefix && prefix != "" { // complete prefixes such as "example.com/" and "team-"
			prefix += "x"
		}
		if len(validation.IsQualifiedName(prefix)) > 0 {
			invalid = append(invalid, name)
		}
	}
	return invalid
}

// selectFrom returns the pod's selected annotations: nil if none are selected, otherwise not nil.
func (a Annotations) selectFrom(p *corev1.Pod) map[string]string {
	if len(a) == 0 {
		return nil
	}
	all := map[string]string{}
	for name, value := range p.Annotations {
		if a.matches(name) {
			all[name] = value
		}
	}
	return all
}

func (a Annotations) matches(name string) bool {
	for _, selected := range a {
		if prefix, ok := strings.CutSuffix(selected, "*"); name == selected || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
