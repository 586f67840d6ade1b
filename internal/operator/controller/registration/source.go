// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
)

// setSourceConditions writes where the endpoints come from and which removals are held. Before the
// first list, what an earlier manager wrote stays.
func (r *Registration) setSourceConditions(s *v1alpha1.KubernetesOperatorStatus, generation int64) {
	if !r.Spec.BindingEnabled {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionAccountChanged)
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionRemovalsHeld)
		return
	}
	removals := r.Endpoints.Removals()
	if removals.Recorded.AccountID != "" {
		s.AccountID, s.StoreID = removals.Recorded.AccountID, removals.Recorded.StoreID
	}
	if removals.Listed.AccountID != "" {
		r.setCondition(s, generation, r.accountChangedCondition(removals))
	}
	if removals.Held ||
		removals.Known && meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionRemovalsHeld) != nil {
		r.setCondition(s, generation, removalsHeldCondition(removals))
	}
}

// accountChangedCondition describes what changed, what is frozen and how to accept it.
func (r *Registration) accountChangedCondition(removals endpointsync.Removals) metav1.Condition {
	recorded, listed := removals.Recorded, removals.Listed
	if !removals.Frozen {
		return newCondition(v1alpha1.ConditionAccountChanged, metav1.ConditionFalse, v1alpha1.ReasonAccountRecorded,
			"the endpoints are listed by the recorded account")
	}
	reason, what, accept := v1alpha1.ReasonAccountChanged,
		fmt.Sprintf("account %s instead of account %s", shellSafeID(listed.AccountID), shellSafeID(recorded.AccountID)),
		listed.AccountID
	if listed.AccountID == recorded.AccountID || listed.AccountID == "" {
		reason, accept = v1alpha1.ReasonStoreChanged, listed.StoreID
		what = fmt.Sprintf("store %s instead of store %s of the same account", shellSafeID(listed.StoreID),
			shellSafeID(recorded.StoreID))
	}
	return newCondition(v1alpha1.ConditionAccountChanged, metav1.ConditionTrue, reason, fmt.Sprintf(
		"the endpoints are now listed by %s, so %d of %d hostnames that it lacks are kept and nothing is "+
			"removed until this is confirmed: "+
			"helm upgrade %s CHART --namespace %s --reuse-values --set binding.acceptAccount=%s",
		what, removals.Pending, removals.Projected, r.Anchors.Installation.Release, r.Anchors.Installation.Namespace,
		shellSafeID(accept)))
}

// shellSafePattern matches ids that may be pasted into a shell.
var shellSafePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func shellSafeID(id string) string {
	if shellSafePattern.MatchString(id) {
		return id
	}
	return "(an invalid id)"
}

func removalsHeldCondition(r endpointsync.Removals) metav1.Condition {
	if !r.Held {
		return newCondition(v1alpha1.ConditionRemovalsHeld, metav1.ConditionFalse, v1alpha1.ReasonNothingHeld,
			"no removal is held")
	}
	return newCondition(v1alpha1.ConditionRemovalsHeld, metav1.ConditionTrue, v1alpha1.ReasonMassRemoval, fmt.Sprintf(
		"%d of %d hostnames lost endpoints at %s or soon after; they are kept until the account is listed "+
			"again, at %s or later",
		r.Pending, r.Projected, r.Since.UTC().Format(time.RFC3339), r.ListDue.UTC().Format(time.RFC3339)))
}
