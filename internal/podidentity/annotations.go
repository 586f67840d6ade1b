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
func (a Annotations) Invalid() (wrong []string) {
	for _, name := range a {
		beginning, isBeginning := strings.CutSuffix(name, "*")
		if isBeginning && beginning != "" { // complete prefixes such as "example.com/" and "team-"
			beginning += "x"
		}
		if len(validation.IsQualifiedName(beginning)) > 0 {
			wrong = append(wrong, name)
		}
	}
	return wrong
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
	for _, wanted := range a {
		if beginning, ok := strings.CutSuffix(wanted, "*"); name == wanted || ok && strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}
