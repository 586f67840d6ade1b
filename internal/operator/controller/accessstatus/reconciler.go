// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessstatus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=endpointaccesses,verbs=get;list;watch
// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=endpointaccesses/status,verbs=update

const (
	// deniedInterval is the minimum between two writes of one object that differ only in whom
	// forwarders denied.
	deniedInterval = 30 * time.Second
	// settleTime is how long forwarders may take to read a changed object before that is reported,
	// so that one write suffices.
	settleTime = 3 * time.Second
)

// Forwarders is what forwarders report; *forwarderstatus.Reader implements it.
type Forwarders interface {
	// Enforcement and TrustEnforcement return the forwarders' state for a namespace whose
	// EndpointAccess or EndpointTrust objects have the digest.
	Enforcement(namespace, digest string) forwarderstatus.Enforcement
	TrustEnforcement(namespace, digest string) forwarderstatus.Enforcement
	// SealedKeys returns keys of agents with which connections to a namespace's URLs were sealed, of URLs
	// about which that is to be recorded.
	SealedKeys(namespace string) map[account.EndpointURL]string
	// Denied returns what they denied at the hostnames of a namespace, the latest first.
	Denied(namespace string) []forwarderstatus.DeniedCalls
}

// NetworkPolicies is the state of the NetworkPolicies; *networkpolicy.Reconciler implements it.
type NetworkPolicies interface {
	// Problem returns whether the EndpointAccess was applied in this generation, and what prevented
	// the policies of the hostnames that match.
	Problem(uid types.UID, generation int64, match func(hostname string) bool) (applied bool, err error)
}

// Reconciler writes the status of EndpointAccess objects. Only the leader runs it.
type Reconciler struct {
	// Client reads and writes the objects: from the cache, unless their namespaces are listed.
	Client     client.Client
	Forwarders Forwarders
	// NetworkPolicies is nil where none are written.
	NetworkPolicies NetworkPolicies
	Clock           clock.PassiveClock

	states objectStates
}

// objectState is what is remembered of one object. Reconciliations of one object are never
// concurrent.
type objectState struct {
	uid           types.UID
	generation    int64
	since         time.Time // since when it has this generation here
	deniedWritten time.Time
}

// objectStates are those of all objects of a kind, by types.NamespacedName.
type objectStates struct{ sync.Map }

// load returns what is remembered of the object.
func (s *objectStates) load(o client.Object, now time.Time) *objectState {
	fresh := &objectState{uid: o.GetUID(), generation: o.GetGeneration(), since: now}
	stored, _ := s.LoadOrStore(client.ObjectKeyFromObject(o), fresh)
	state := stored.(*objectState)
	if state.uid != fresh.uid || state.generation != fresh.generation {
		state.uid, state.generation, state.since = fresh.uid, fresh.generation, fresh.since
	}
	return state
}

// SetupWithManager adds the controller. changes names objects whose enforcement may have changed,
// and without watch those that changed themselves.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watch bool, changes source.Source) error {
	build := ctrl.NewControllerManagedBy(mgr).Named("accessstatus").WatchesRawSource(changes)
	if watch {
		build = build.Watches(&v1alpha1.EndpointAccess{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	return build.Complete(r)
}

// Reconcile writes the status of one object if it differs.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.EndpointAccess{}
	if err := r.Client.Get(ctx, req.NamespacedName, o); apierrors.IsNotFound(err) {
		r.states.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading EndpointAccess %s: %w", req.NamespacedName, err)
	}
	digest, err := r.digest(ctx, o.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.Clock.Now()
	state := r.states.load(o, now)
	next := o.DeepCopy()
	settling := r.setConditions(next, digest, now.Sub(state.since) < settleTime)
	setDenied(next, r.Forwarders.Denied(o.Namespace))
	var result ctrl.Result
	if settling {
		result.RequeueAfter = settleTime
	}
	if equality.Semantic.DeepEqual(o.Status, next.Status) {
		return result, nil
	}
	if equality.Semantic.DeepEqual(o.Status.Conditions, next.Status.Conditions) {
		if wait := deniedInterval - now.Sub(state.deniedWritten); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	if retry, err := status.Write(ctx, r.Client, "EndpointAccess", o, next); retry > 0 || err != nil {
		return ctrl.Result{RequeueAfter: retry}, err
	}
	state.deniedWritten = now
	return result, nil
}

// digest returns the digest of the namespace's objects, as forwarders report it.
func (r *Reconciler) digest(ctx context.Context, namespace string) (string, error) {
	var list v1alpha1.EndpointAccessList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the EndpointAccess objects of namespace %s: %w", namespace, err)
	}
	policies := make([]*endpointaccess.Policy, len(list.Items))
	for i := range list.Items {
		p := accesspolicy.Of(&list.Items[i])
		policies[i] = &p
	}
	return endpointaccess.Digest(policies), nil
}
