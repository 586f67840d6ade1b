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
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// maxFields is how many refused fields a message names.
const maxFields = 3

// policyProblem returns the problem of a policy that could not be read or used.
func policyProblem(err error) *status.Problem {
	if found := status.AsProblem(err); found != nil {
		// a copy: the reader of policies keeps its own
		return &status.Problem{Reason: found.Reason, Message: found.Message}
	}
	return &status.Problem{Reason: v1alpha1.ReasonPending, Message: err.Error(), Err: err}
}

// problemOf returns the problem of a call of the account's API.
func problemOf(err error) *status.Problem {
	p := &status.Problem{Reason: v1alpha1.ReasonRejected, Message: messageOf(err), Err: err}
	switch code := account.CodeOf(err); {
	case accountclient.Unanswered(err):
		p.Reason = v1alpha1.ReasonUnreachable
	case code == account.CodeURLTaken:
		p.Reason = v1alpha1.ReasonURLTaken
	case code == account.CodeLimit:
		p.Reason = v1alpha1.ReasonLimitReached
	case code == account.CodeNotFound:
		p.Reason, p.Message = v1alpha1.ReasonPending, "the account's endpoint was deleted; it is made again"
	case code == account.CodeScope || code == account.CodeNoCredential || code == account.CodeUnknownCredential ||
		code == account.CodeWrongKind || code == account.CodeExpired || code == account.CodeUnknownKey:
		p.Reason = v1alpha1.ReasonForbidden
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
