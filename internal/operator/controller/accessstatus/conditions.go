// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessstatus

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// maxDenied is the limit of status.denied; the CRD has the same.
const maxDenied = 10

// setConditions sets the conditions of the object. While it settles, what is not known of its new
// generation yet stays as it was, and the result is whether that is so.
func (r *Reconciler) setConditions(o *v1alpha1.EndpointAccess, digest string, settles bool) (settling bool) {
	policy := accesspolicy.Of(o)
	conditions := []metav1.Condition{acceptedCondition(&policy)}
	e := r.Forwarders.Enforcement(o.Namespace, digest)
	if settles && (!e.Known || e.Behind != "") {
		settling = true
	} else {
		conditions = append(conditions, enforceCondition(e))
	}
	written, known := r.writtenCondition(o, &policy)
	if known {
		conditions = append(conditions, written)
	}
	status.Set(&o.Status.Conditions, o.Generation, r.Clock.Now(), conditions...)
	return settling
}

func acceptedCondition(policy *endpointaccess.Policy) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonAccepted, Message: "its selectors are valid"}
	if err := policy.Spec.Validate(); err != nil {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalidSelector
		c.Message = "a peer that is not valid allows no pod: " + err.Error()
	}
	return c
}

func enforceCondition(e forwarderstatus.Enforcement) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionForwardersEnforce, Status: metav1.ConditionFalse}
	switch {
	case !e.Known || e.Forwarders == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonForwardersUnknown
		c.Message = "no forwarder reports its status"
	case e.Behind != "":
		c.Reason = v1alpha1.ReasonForwardersBehind
		c.Message = fmt.Sprintf("forwarder %s does not report that it enforces this generation, as %d of %d do",
			e.Behind, e.Enforcing+e.WithoutPodIdentity+e.LeftToNetwork, e.Forwarders)
	case e.WithoutPodIdentity > 0:
		c.Reason = v1alpha1.ReasonPodIdentityDisabled
		c.Message = "forwarders do not know which pod calls, and deny every call of what it selects: set " +
			"forwarder.podIdentity.enabled=true"
	case e.LeftToNetwork > 0:
		c.Reason = v1alpha1.ReasonNetworkPoliciesDecide
		c.Message = "forwarders do not know which pod calls, and leave it to NetworkPolicies who may, which know no " +
			"ServiceAccounts; forwarder.podIdentity.enabled=true lets forwarders decide, too"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonEnforced
		c.Message = fmt.Sprintf("%d of %d forwarders enforce it", e.Enforcing, e.Forwarders)
	}
	return c
}

// writtenCondition returns the condition NetworkPoliciesWritten. It is not known until a pass has
// applied this generation.
func (r *Reconciler) writtenCondition(
	o *v1alpha1.EndpointAccess, policy *endpointaccess.Policy,
) (c metav1.Condition, known bool) {
	c = metav1.Condition{Type: v1alpha1.ConditionNetworkPoliciesWritten, Status: metav1.ConditionFalse}
	if r.NetworkPolicies == nil {
		c.Reason, c.Message = v1alpha1.ReasonDisabled, "networkPolicy.enabled of the chart is false"
		return c, true
	}
	applied, err := r.NetworkPolicies.Problem(o.UID, o.Generation, selects(policy))
	switch {
	case !applied:
		return c, false
	case err != nil:
		c.Reason, c.Message = v1alpha1.ReasonNotWritten, err.Error()
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonWritten
		c.Message = "the forwarders' NetworkPolicies let only these peers connect, and all pods of the namespaces " +
			"where serviceAccounts are named"
	}
	return c, true
}

// selects returns a function that reports whether the policy selects a hostname, at any port.
func selects(policy *endpointaccess.Policy) func(hostname string) bool {
	p := *policy
	p.Spec.Ports = nil
	rules := endpointaccess.Compile([]endpointaccess.Policy{p}, endpointaccess.Allow)
	return func(hostname string) bool { return rules.Restricted(endpointaccess.TargetOf(hostname, 0)) }
}

// setDenied sets whom forwarders denied at what the object selects.
func setDenied(o *v1alpha1.EndpointAccess, denied []forwarderstatus.DeniedCalls) {
	policy := accesspolicy.Of(o)
	rules := endpointaccess.Compile([]endpointaccess.Policy{policy}, endpointaccess.Allow)
	o.Status.Denied, o.Status.DeniedCalls = nil, 0
	for _, d := range denied {
		if len(o.Status.Denied) == maxDenied || !rules.Restricted(endpointaccess.TargetOf(d.Hostname, d.Port)) {
			continue
		}
		o.Status.Denied = append(o.Status.Denied, v1alpha1.DeniedCaller{Hostname: d.Hostname, Caller: d.Caller,
			Count: d.Count, LastTime: metav1.NewTime(d.LastTime.UTC()).Rfc3339Copy()})
	}
	for _, d := range o.Status.Denied {
		o.Status.DeniedCalls += d.Count
	}
}
