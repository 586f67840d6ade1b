// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes and writes the conditions of objects. Input: the conditions that a
// controller found. Output: the object's status, if it differs, and events. The callers are the
// controllers of the manager and of the exporter.
package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// ConflictRetry is the delay before a write that lost against a concurrent one, or was based on a
// stale cache, is repeated.
const ConflictRetry = 50 * time.Millisecond

// Ready returns the condition Ready: the first condition that is not True or, if all are, True with
// the message.
func Ready(message string, conditions ...metav1.Condition) metav1.Condition {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			c.Type = v1alpha1.ConditionReady
			return c
		}
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonReady, Message: message}
}

// Set sets conditions for a generation.
func Set(all *[]metav1.Condition, generation int64, now time.Time, conditions ...metav1.Condition) {
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(all, c)
	}
}

// Write writes the status of next, an object of the kind, if it differs from before. retry > 0
// means that it was not written, as the cache is older than the object.
func Write(ctx context.Context, c client.Client, kind string, before, next client.Object) (
	retry time.Duration, err error,
) {
	if equality.Semantic.DeepEqual(before, next) {
		return 0, nil
	}
	err = c.Status().Update(ctx, next)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return ConflictRetry, nil
	case err != nil:
		return 0, fmt.Errorf("writing the status of %s %s: %w", kind, client.ObjectKeyFromObject(next), err)
	}
	return 0, nil
}

// Changed returns the condition of a type when its status or reason is another one than before,
// nil if there was none, else is = nil.
func Changed(before, now []metav1.Condition, typ string) (was, is *metav1.Condition) {
	was, is = meta.FindStatusCondition(before, typ), meta.FindStatusCondition(now, typ)
	if is != nil && was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return was, nil
	}
	return was, is
}

// Event records a condition as an event.
func Event(recorder events.EventRecorder, o runtime.Object, action string, c metav1.Condition, warning bool) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	recorder.Eventf(o, nil, kind, c.Reason, action, "%s", c.Message)
}

// Problem is what prevents an object from being as it should be. As an error, it is one that only
// a change of an object ends.
type Problem struct {
	Reason, Message string        // Reason and Message are those of the condition that is False.
	RetryAfter      time.Duration // RetryAfter is the delay before the next attempt; 0: an event follows.
	Quiet           bool          // Quiet is set for a problem that passes by itself: not reported.
	Err             error         // Err is an unexpected error: retried with back-off.
	// ConflictingService is the key of a Service of another owner that has the name.
	ConflictingService string
}

// Problemf returns a problem that only an event ends.
func Problemf[R ~string](reason R, format string, args ...any) *Problem {
	return &Problem{Reason: string(reason), Message: fmt.Sprintf(format, args...)}
}

// Pending returns the problem of what is not known yet; an event follows.
func Pending() *Problem { return &Problem{Quiet: true} }

// AsProblem returns the Problem in err's chain; nil if there is none.
func AsProblem(err error) *Problem {
	p, _ := errors.AsType[*Problem](err)
	return p
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// Condition returns a condition that is True, with the reason and message, or False with those of
// the problem.
func Condition(typ, reason, message string, p *Problem) metav1.Condition {
	c := metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if p != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.Reason, p.Message
	}
	return c
}
