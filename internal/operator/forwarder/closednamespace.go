// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
)

// Reasons of denials in a namespace that is gone or going: no pod may call what no EndpointAccess
// selects there.
const (
	reasonNamespaceTerminating endpointaccess.Reason = "namespace_terminating"
	reasonNamespaceMissing     endpointaccess.Reason = "namespace_missing"
	reasonNamespaceForbidden   endpointaccess.Reason = "namespace_forbidden"
)

// closedNamespaces has what each of these reasons says about the namespace.
var closedNamespaces = map[endpointaccess.Reason]string{
	reasonNamespaceTerminating: "is being deleted",
	reasonNamespaceMissing:     "does not exist",
	reasonNamespaceForbidden:   "does not exist, or does not let this installation read it",
}

// closingReasons are the reasons of denials by what is wrong with the namespace, as conditions have
// it.
var closingReasons = map[string]endpointaccess.Reason{
	v1alpha1.ReasonNamespaceTerminating: reasonNamespaceTerminating,
	v1alpha1.ReasonNamespaceNotFound:    reasonNamespaceMissing,
	v1alpha1.ReasonNamespaceForbidden:   reasonNamespaceForbidden,
}

// closed returns why no pod may call the target: its namespace is gone or going, so that a missing
// EndpointAccess does not mean that every pod may. "": a policy selects it, or the namespace is
// there.
func (a *accessControl) closed(s *caller.Snapshot, t endpointaccess.Target) endpointaccess.Reason {
	problem, known := s.NamespaceProblem(t.Namespace)
	if reported := a.problems.Load(); !known && reported != nil {
		problem = (*reported)[t.Namespace]
	}
	if problem == "" || s.Rules.Current(t) {
		return ""
	}
	return closingReasons[problem]
}

// setObjects sets what the manager reports: which NetworkPolicies it has written, and what is wrong
// with target namespaces.
func (a *accessControl) setObjects(o Objects) {
	if a == nil {
		return
	}
	problems := map[string]string{}
	for _, b := range o.BoundEndpoints {
		c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionServicesReady)
		if c != nil && closingReasons[c.Reason] != "" {
			problems[b.Spec.Namespace] = c.Reason
		}
	}
	a.problems.Store(&problems)
	if (a.written.Swap(o.NetworkPolicies) == nil) != (o.NetworkPolicies == nil) {
		a.changed.broadcast()
	}
}
