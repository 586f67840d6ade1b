// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessstatus

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=endpointtrusts,verbs=get;list;watch
// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=endpointtrusts/status,verbs=update

// TrustObjects are the EndpointTrust objects; *trustrules.Watcher implements it.
type TrustObjects interface {
	// Object returns an object, which must not be modified, or nil if there is none.
	Object(key types.NamespacedName) *v1alpha1.EndpointTrust
	// Snapshot returns the rules of all objects.
	Snapshot() *endpointtrust.Rules
}

// TrustReconciler writes the status of EndpointTrust objects. Only the leader runs it.
type TrustReconciler struct {
	Client     client.Client // Client writes the statuses.
	Objects    TrustObjects
	Forwarders Forwarders
	Clock      clock.PassiveClock

	states objectStates
}

// SetupWithManager adds the controller. changes names objects whose conditions may have changed.
func (r *TrustReconciler) SetupWithManager(mgr ctrl.Manager, changes source.Source) error {
	return ctrl.NewControllerManagedBy(mgr).Named("truststatus").WatchesRawSource(changes).Complete(r)
}

// Reconcile writes the status of one object if it differs.
func (r *TrustReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, rules := r.Objects.Object(req.NamespacedName), r.Objects.Snapshot()
	policy, decision := rules.Examine(req.Namespace, req.Name)
	if o == nil || policy == nil {
		r.states.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	next, now, result := o.DeepCopy(), r.Clock.Now(), ctrl.Result{}
	conditions := []metav1.Condition{trustCondition(policy, decision)}
	e := r.Forwarders.TrustEnforcement(o.Namespace, rules.Digests[o.Namespace])
	if now.Sub(r.states.load(o, now).since) < settleTime && (!e.Known || e.Behind != "") {
		result.RequeueAfter = settleTime
	} else {
		conditions = append(conditions, enforceCondition(e))
	}
	status.Set(&next.Status.Conditions, policy.Generation, now, conditions...)
	if retry, err := status.Write(ctx, r.Client, "EndpointTrust", o, next); retry > 0 || err != nil {
		return ctrl.Result{RequeueAfter: retry}, err
	}
	return result, nil
}

// trustCondition returns the condition Accepted: whom the policy trusts, or why connections to what
// it selects are refused.
func trustCondition(p *endpointtrust.Policy, d endpointtrust.Decision) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonAccepted}
	switch {
	case d.Refused != "":
		c.Status, c.Reason = metav1.ConditionFalse, accesspolicy.TrustReason(d.Refused)
		c.Message = "connections are refused: " + d.Detail
		return c
	case len(d.Trust.Keys) > 0:
		c.Message = fmt.Sprintf("agents need one of these keys: %d", len(d.Trust.Keys))
	case len(d.Trust.Authorities) > 0:
		c.Message = fmt.Sprintf("agents need a certificate of one of these authorities: %d", len(d.Trust.Authorities))
		if len(p.Spec.Authorities) == 0 {
			c.Message += ", of binding.sealAuthority"
		}
	}
	return c
}
