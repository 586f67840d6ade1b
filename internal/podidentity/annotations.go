// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations say which annotations of pods are kept: names, and beginnings of names that end in
// "*". None: no annotation is.
type Annotations []string

// Invalid returns the ones that are neither the name of an annotation nor the beginning of one.
func (a Annotations) Invalid() (wrong []string) {
	for _, name := range a {
		beginning, isBeginning := strings.CutSuffix(name, "*")
		if isBeginning && beginning != "" { // what may follow: "example.com/" and "team-" are no names yet
			beginning += "x"
		}
		if len(validation.IsQualifiedName(beginning)) > 0 {
			wrong = append(wrong, name)
		}
	}
	return wrong
}

// selectFrom returns the pod's annotations that are wanted: nil when none are, and not nil when the pod has
// none of them.
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
	for _, wanted := range a {
		if beginning, ok := strings.CutSuffix(wanted, "*"); name == wanted || ok && strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}
