// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessstatus

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
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
	Announced  Announced
	Clock      clock.PassiveClock

	states objectStates
}

// Announced is what the service announces of an account's endpoints; *endpointsync.Set implements it.
type Announced interface {
	// SealKeysIn returns the keys by which the agents of a namespace's URLs seal connections, "" among
	// them if some do not seal.
	SealKeysIn(namespace string) map[account.EndpointURL][]string
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
	accepted := trustCondition(policy, decision)
	if policy.Spec.Mode == sealed.Prefer { // also while another object contradicts it, for other URLs
		r.record(policy, next)
	}
	switch {
	case decision.FirstSight:
		accepted.Message += r.pin(rules, policy, next)
	case decision.Trust.Mode == sealed.Prefer:
		accepted.Message += fmt.Sprintf("; URLs that were never sealed are called in the clear while none of their "+
			"agents seals; sealed so far: %d", len(next.Status.Pins))
	}
	conditions := []metav1.Condition{accepted}
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
	case d.FirstSight:
		c.Message = "the key that is seen first is trusted, and the service chooses it: for demonstrations; give " +
			"authorities or keys else"
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

// maxPins is the limit of status.pins; the CRD has the same.
const maxPins = 1000

// pin pins the keys of the URLs that the policy selects and whose agents announce one, unless another
// one is pinned. It returns what is to be said about those that announce several; it names ten.
func (r *TrustReconciler) pin(rules *endpointtrust.Rules, p *endpointtrust.Policy, o *v1alpha1.EndpointTrust) string {
	var several []string
	for u, keys := range r.Announced.SealKeysIn(p.Namespace) {
		url := u.String()
		_, invalid := sealed.ParseKey(keys[0])
		selected := endpointaccess.Selects(p.Spec.Endpoints, p.Spec.Ports, endpointaccess.TargetOf(u.Host, u.Port))
		switch {
		case !selected || o.Status.Pins[url] != "" || len(keys) == 1 && invalid != nil ||
			rules.Decide(u).Refused != endpointtrust.ReasonNotPinned: // by another object's pin
		case len(keys) > 1:
			several = append(several, url)
		case len(o.Status.Pins) < maxPins:
			setPin(o, url, keys[0])
		}
	}
	if len(several) == 0 {
		return ""
	}
	slices.Sort(several)
	return "; connections are refused, as agents announce different keys, to " +
		strings.Join(several[:min(len(several), 10)], ", ")
}

// record pins the keys of the URLs that the policy selects and that were sealed, unless one is pinned.
func (r *TrustReconciler) record(p *endpointtrust.Policy, o *v1alpha1.EndpointTrust) {
	for u, key := range r.Forwarders.SealedKeys(p.Namespace) {
		if endpointaccess.Selects(p.Spec.Endpoints, p.Spec.Ports, endpointaccess.TargetOf(u.Host, u.Port)) &&
			o.Status.Pins[u.String()] == "" && len(o.Status.Pins) < maxPins {
			setPin(o, u.String(), key)
		}
	}
}

func setPin(o *v1alpha1.EndpointTrust, url, key string) {
	if o.Status.Pins == nil {
		o.Status.Pins = map[string]string{}
	}
	o.Status.Pins[url] = key
}
