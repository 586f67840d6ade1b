// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
)

// maxFields is how many refused fields a message names.
const maxFields = 3

// problem is why an object's endpoint is not as the object asks for.
type problem struct {
	condition string // the condition that is False: ConditionAccepted or ConditionBound
	reason    string
	message   string
	// keepsEndpoint means that an endpoint of before stays as it is.
	keepsEndpoint bool
	err           error // for which it is tried again; nil if only a change of an object helps
}

// notAccepted returns the problem of a spec for which the account has no endpoint.
func notAccepted(reason, message string) *problem {
	return &problem{condition: v1alpha1.ConditionAccepted, reason: reason, message: message}
}

// policyProblem returns the problem of a policy that could not be read or used.
func policyProblem(err error) *problem {
	p := &problem{condition: v1alpha1.ConditionAccepted, reason: v1alpha1.ReasonPending, message: err.Error(),
		keepsEndpoint: true, err: err}
	if found := policy.AsProblem(err); found != nil {
		p.reason, p.message, p.err = found.Reason, found.Message, nil
	}
	return p
}

// problemOf returns the problem of a call of the account's API.
func problemOf(err error) *problem {
	p := &problem{condition: v1alpha1.ConditionBound, reason: v1alpha1.ReasonRejected, message: messageOf(err),
		keepsEndpoint: true, err: err}
	switch code := account.CodeOf(err); {
	case accountclient.Unanswered(err):
		p.reason = v1alpha1.ReasonUnreachable
	case code == account.CodeURLTaken:
		p.reason = v1alpha1.ReasonURLTaken
	case code == account.CodeLimit:
		p.reason = v1alpha1.ReasonLimitReached
	case code == account.CodeNotFound:
		p.reason, p.message = v1alpha1.ReasonPending, "the account's endpoint was deleted; it is made again"
	case code == account.CodeScope || code == account.CodeNoCredential || code == account.CodeUnknownCredential ||
		code == account.CodeWrongKind || code == account.CodeExpired || code == account.CodeUnknownKey:
		p.reason = v1alpha1.ReasonForbidden
	}
	return p
}

// specFields are the fields of an object, by those of the account's API.
var specFields = map[string]string{
	"url": "spec.url", "bindings": "spec.bindings", "description": "spec.description", "metadata": "spec.metadata",
	"traffic_policy": "spec.trafficPolicy", "backend_id": "spec.backend.id", "pooling_enabled": "spec.poolingEnabled",
}

// messageOf returns the service's sentence, with the object's names of the fields.
func messageOf(err error) string {
	e, ok := errors.AsType[*account.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err.Error()
	}
	var texts []string
	for _, f := range e.Fields[:min(len(e.Fields), maxFields)] {
		if name := specFields[f.Field]; name != "" {
			f.Field = name
		}
		texts = append(texts, f.String())
	}
	if more := len(e.Fields) - maxFields; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}

// delay returns how long the next attempt for the object waits.
func (r *Reconciler) delay(key types.NamespacedName, err error) time.Duration {
	r.backoff.Next(key.String(), r.backoff.Clock.Now())
	wait := r.backoff.Get(key.String())
	if accountclient.Unanswered(err) {
		wait = min(wait, unansweredRetry)
	}
	return wait
}
