// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// reportStatus writes the status if it changed, with an event for a new reason.
func (r *Reconciler) reportStatus(ctx context.Context, o *v1alpha1.CloudEndpoint, out outcome) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(o)
	next := o.DeepCopy()
	if !out.unchanged {
		r.setStatus(next, out)
	}
	write, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if retry, err := status.Write(write, r.Client, account.KindCloudEndpoint, o, next); retry > 0 || err != nil {
		return ctrl.Result{RequeueAfter: retry}, err
	}
	r.emitEvent(next, o.Status.Conditions)
	if p := cmp.Or(out.refused, out.unbound); p != nil {
		return r.retry(key, p.Err)
	}
	return r.retry(key, nil)
}

// setStatus sets the whole status.
func (r *Reconciler) setStatus(o *v1alpha1.CloudEndpoint, out outcome) {
	s := &o.Status
	s.ObservedGeneration = o.Generation
	switch {
	case out.endpoint != nil:
		s.ID, s.AssignedURL = out.endpoint.ID, out.endpoint.URL
	case out.removed:
		s.ID, s.AssignedURL = "", ""
	}
	unbound := out.unbound
	if out.refused != nil && s.ID == "" {
		unbound = status.Problemf(v1alpha1.ReasonPending, "the account has no endpoint before the spec is accepted")
	}
	if p := cmp.Or(out.refused, out.unbound); p != nil && s.ID != "" && out.kept {
		p.Message += "; the endpoint stays as it was"
	}
	accepted := status.Condition(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "the spec is valid", out.refused)
	bound := status.Condition(v1alpha1.ConditionBound, v1alpha1.ReasonBound, "the account has the endpoint "+s.ID,
		unbound)
	status.Set(&s.Conditions, o.Generation, r.Clock.Now(), accepted, bound,
		status.Ready("the service answers at "+s.AssignedURL, accepted, bound))
}

// isBound reports whether the status says that the account has the endpoint of the object's spec.
func isBound(o *v1alpha1.CloudEndpoint) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation
}

// emitEvent emits an event if the reason of Ready changed. A new object that is ready at once gets
// none, and an outage of the service is no object's event.
func (r *Reconciler) emitEvent(o *v1alpha1.CloudEndpoint, before []metav1.Condition) {
	old, now := status.Changed(before, o.Status.Conditions, v1alpha1.ConditionReady)
	if now == nil || now.Reason == v1alpha1.ReasonUnreachable ||
		now.Status == metav1.ConditionTrue && (old == nil || old.Reason == v1alpha1.ReasonUnreachable) {
		return
	}
	status.Event(r.Recorder, o, "Export", *now, now.Status == metav1.ConditionFalse)
}

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
	p := &status.Problem{Reason: v1alpha1.ReasonRejected, Message: accountclient.Message(err, specField), Err: err}
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

// specField returns the object's name of a field of the account's API.
func specField(name string) string { return cmp.Or(specFields[name], name) }

// specFields are the fields of an object, by those of the account's API.
var specFields = map[string]string{
	"url": "spec.url", "bindings": "spec.bindings", "description": "spec.description", "metadata": "spec.metadata",
	"traffic_policy": "spec.trafficPolicy", "backend_id": "spec.backend.id", "pooling_enabled": "spec.poolingEnabled",
}
