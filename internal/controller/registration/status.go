// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// observe puts what the heartbeat found into the status.
func (r *Registration) observe(s *v1alpha1.KubernetesOperatorStatus, generation int64, failure error) {
	for _, c := range r.conditions(failure) {
		if last := meta.FindStatusCondition(s.Conditions, c.Type); last != nil && last.Reason == c.Reason && c.Reason == v1alpha1.ReasonUnreachable {
			c.Message = last.Message // the sentences of a network that is down differ from try to try, and say the same
		}
		r.set(s, generation, c)
	}
}

func (r *Registration) set(s *v1alpha1.KubernetesOperatorStatus, generation int64, c metav1.Condition) {
	c.ObservedGeneration = generation
	c.LastTransitionTime = metav1.NewTime(r.Now())
	meta.SetStatusCondition(&s.Conditions, c)
}

func condition(typ string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message}
}

// conditions returns those that the heartbeat can say something about: an API that is out of reach says nothing about the registration.
func (r *Registration) conditions(failure error) []metav1.Condition {
	answered := condition(v1alpha1.ConditionAPIReachable, metav1.ConditionTrue, v1alpha1.ReasonOnline, "the account's API answers")
	if r.Facts().Polling {
		answered.Message = "the account's API answers, but knows no watch: changes take up to 10 s"
	}
	switch account.CodeOf(failure) {
	case "":
		return []metav1.Condition{answered,
			condition(v1alpha1.ConditionRegistered, metav1.ConditionTrue, v1alpha1.ReasonRegistered, "the account knows this installation")}
	case account.CodeNoCredential, account.CodeUnknownCredential, account.CodeWrongKind, account.CodeExpired, account.CodeScope:
		return []metav1.Condition{answered,
			condition(v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonUnauthorized, safeMessage(failure))}
	case account.CodeUnreachable, account.CodeBadAnswer, account.CodeInternal, account.CodeUnavailable, account.CodeTooMany:
		return []metav1.Condition{condition(v1alpha1.ConditionAPIReachable, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, failure.Error())}
	}
	return []metav1.Condition{answered, condition(v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonAPIError, safeMessage(failure))}
}

// safeMessage is the account's own sentence where there is one.
func safeMessage(failure error) string {
	var e *account.Error
	if errors.As(failure, &e) {
		return cmp.Or(e.Msg, e.Error())
	}
	return failure.Error()
}

// count counts the hostnames projected, and those of them that are ready.
func (r *Registration) count(ctx context.Context, s *v1alpha1.KubernetesOperatorStatus) error {
	var list v1alpha1.BoundEndpointList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Installation.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing BoundEndpoints: %w", err)
	}
	s.BoundEndpoints, s.ReadyEndpoints = 0, 0
	for i := range list.Items {
		b := &list.Items[i]
		if !r.Installation.Owns(b) || b.Spec.State == v1alpha1.StateReleased {
			continue
		}
		s.BoundEndpoints++
		if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady) {
			s.ReadyEndpoints++
		}
	}
	return nil
}

// tell emits an event for each condition whose reason has changed. That a new object has nothing to complain of is no news.
func (r *Registration) tell(o *v1alpha1.KubernetesOperator, before []metav1.Condition) {
	for _, c := range o.Status.Conditions {
		old := meta.FindStatusCondition(before, c.Type)
		complaint := c.Type == v1alpha1.ConditionAccountChanged || c.Type == v1alpha1.ConditionRemovalsHeld
		bad := complaint == (c.Status == metav1.ConditionTrue)
		if old != nil && old.Reason == c.Reason && old.Status == c.Status || old == nil && complaint && !bad {
			continue
		}
		kind := corev1.EventTypeNormal
		if bad {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(o, nil, kind, c.Reason, "Register", "%s: %s", c.Type, c.Message)
	}
}
