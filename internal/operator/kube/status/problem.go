// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
