// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// digits differ between attempts in the messages of a failing network: mostly ports.
var digits = regexp.MustCompile(`[0-9]+`)

// setEdgeCondition writes whether the forwarders have a session with the edge, and to how many
// replicas of the service they are connected.
func (r *Registration) setEdgeCondition(s *v1alpha1.KubernetesOperatorStatus, generation int64) {
	if r.Forwarders == nil {
		s.Legs = ""
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionEdgeReachable)
		return
	}
	if known, legs := r.Forwarders.Legs(); known {
		s.Legs = legs
	}
	known, problem := r.Forwarders.EdgeStatus()
	if !known {
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionEdgeReachable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOnline,
		Message: "all forwarders have a session with the service's edge",
	}
	if problem != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonUnreachable, problem
		last := meta.FindStatusCondition(s.Conditions, c.Type)
		if last != nil && digits.ReplaceAllString(last.Message, "") == digits.ReplaceAllString(problem, "") {
			c.Message = last.Message
		}
	}
	r.setCondition(s, generation, c)
}

// setOptionalCondition writes the condition of a part; nil: the installation does without.
func (r *Registration) setOptionalCondition(
	s *v1alpha1.KubernetesOperatorStatus, generation int64, typ string, part Part,
) {
	if part == nil {
		meta.RemoveStatusCondition(&s.Conditions, typ)
	} else if c := part.Condition(); c != nil {
		r.setCondition(s, generation, *c)
	}
}
