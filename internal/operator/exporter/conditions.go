// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// condition returns a condition that is True, or False with the problem's reason and sentence.
func condition(typ, reason, message string, p *problem) metav1.Condition {
	c := metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if p != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.Reason, p.Message
	}
	return c
}

// readyChanged returns the condition Ready when its status or reason is another one than before,
// else nil.
func readyChanged(before, now []metav1.Condition) *metav1.Condition {
	was, is := meta.FindStatusCondition(before, v1alpha1.ConditionReady),
		meta.FindStatusCondition(now, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return nil
	}
	return is
}
