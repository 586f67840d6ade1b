// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration registers the installation with the account and maintains the
// KubernetesOperator object.
//
// Inputs: the release's values, and the state of the account's feed from
// internal/operator/controller/endpointsync. It upserts the installation at the account's API every
// minute, which is also the heartbeat, and writes the object's spec and status. The forwarders read
// the operator's id from that status. An unreachable API is a condition, never a reason to stop.
package registration

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=kubernetesoperators,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=kubernetesoperators/status,verbs=update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=fairlead,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=fairlead,resources=leases,resourceNames=fairlead-operator,verbs=get;update

const (
	heartbeatInterval = time.Minute
	// pollInterval is how often the counts are updated, and how soon a failed heartbeat is
	// repeated.
	pollInterval = 10 * time.Second
	// accountTimeout bounds the account's answer to a heartbeat. Reporting has a deadline of its
	// own, so that an account that never answers is reported.
	accountTimeout = 10 * time.Second
	// clusterTimeout bounds reading and writing the object.
	clusterTimeout = 10 * time.Second
	// watchGrace is how long the endpoints may be unreadable before that is reported: a reopened
	// watch proves that it works with its next BOOKMARK, up to 15 s later.
	watchGrace = 20 * time.Second
)

// Registrar registers operators with the account.
type Registrar interface {
	// UpsertOperator registers by (cluster uid, namespace, name) and returns the operator with its
	// id.
	UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, error)
}

// Endpoints are the account's kubernetes-bound endpoints as this manager has them;
// *endpointsync.Feed and *endpointsync.Set together.
type Endpoints interface {
	// Status returns whether the account's endpoints can be read, and Removals which of them are
	// held.
	Status() endpointsync.FeedStatus
	Removals() endpointsync.Removals
	// RequestList is called when the account returns another id for this installation than before,
	// as another account does.
	RequestList()
}

// Forwarders are the forwarders of the installation.
type Forwarders interface {
	// EdgeStatus returns whether all of them have a session with the service's edge, and the
	// problem if not. While it is unknown, the last condition stays.
	EdgeStatus() (known bool, problem string)
	// Legs returns the status's Legs. While it is unknown, the last one stays.
	Legs() (known bool, legs string)
}

// Part is a part of the manager that an installation may do without.
type Part interface {
	// Condition returns its condition of the KubernetesOperator, without generation and time. While
	// it returns nil, the last one stays.
	Condition() *metav1.Condition
}

// Registration registers the installation and maintains its KubernetesOperator.
type Registration struct {
	// Client reads BoundEndpoints and the KubernetesOperator from the cache.
	Client client.Client
	// Live reads from the API server.
	Live    client.Reader
	Account Registrar
	Anchors *installation.Anchors
	Spec    v1alpha1.KubernetesOperatorSpec
	Version string
	// ClusterName is the cluster's display name in the account.
	ClusterName string
	Endpoints   Endpoints
	// Forwarders run unless it is nil, Services are imported unless ServiceImports is,
	// NetworkPolicies are written unless NetworkPolicies is, and the pods present tokens of their
	// ServiceAccounts unless Keys is.
	Forwarders                            Forwarders
	ServiceImports, NetworkPolicies, Keys Part
	Recorder                              events.EventRecorder
	Clock                                 clock.PassiveClock
	Log                                   logr.Logger
	// AccountTimeout bounds the account's answer to a heartbeat; 0: 10 s.
	AccountTimeout time.Duration

	clusterUID string
	confirmed  atomic.Int64 // Unix time of the last heartbeat that the account confirmed; 0 = none

	// mu guards what follows and the writes of the object: Start, RecordProjectedForwarders
	// and RecordNetworkPolicies write it.
	mu sync.Mutex
	// projectedForwarders is the status's ProjectedForwarders; nil: what an earlier manager wrote.
	projectedForwarders *[]string
	// networkPolicies is the status's NetworkPolicies; nil: what an earlier manager wrote.
	networkPolicies **v1alpha1.WrittenNetworkPolicies
	// latest is the object as this process wrote it last, and replaced are the versions before it,
	// which the cache may still have; nil: none, or its write failed.
	latest   *v1alpha1.KubernetesOperator
	replaced []string
	// attempted reports whether this process has sent a heartbeat; lastError is the error of the
	// last one.
	attempted bool
	lastError error
}

// Start sends heartbeats until the context ends, and refreshes the object in between. It returns
// nil.
func (r *Registration) Start(ctx context.Context) error {
	logged := ""
	var changed <-chan struct{}
	for due := r.Clock.Now(); ctx.Err() == nil; sleep(ctx, changed, pollInterval*9/10+rand.N(pollInterval/5)) {
		changed = r.Endpoints.Removals().Changed
		if r.Clock.Now().Before(due) && r.Endpoints.Status().Err == nil {
			r.logChanged(ctx, &logged, r.Refresh(ctx))
			continue
		}
		healthy, err := r.Heartbeat(ctx)
		r.logChanged(ctx, &logged, err)
		if healthy && err == nil {
			due = r.Clock.Now().Add(heartbeatInterval - pollInterval/2)
		}
	}
	return nil
}

// logChanged logs an error that differs from the last one.
func (r *Registration) logChanged(ctx context.Context, logged *string, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		*logged = ""
		return
	}
	if err.Error() != *logged {
		*logged = err.Error()
		r.Log.Error(err, "Updating the KubernetesOperator object failed; it is retried")
	}
}

// Refresh updates the object without a heartbeat.
func (r *Registration) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	object, err := r.ensureObject(ctx)
	if err != nil {
		return err
	}
	return r.updateStatus(ctx, object, object.DeepCopy())
}

// Heartbeat registers once and updates the object if it changed. healthy reports whether the
// account answered and knows the installation; the error is about the object.
func (r *Registration) Heartbeat(ctx context.Context) (healthy bool, err error) {
	uid, err := r.prepare(ctx)
	if err != nil {
		return false, err
	}
	requestCtx, cancel := context.WithTimeout(ctx, cmp.Or(r.AccountTimeout, accountTimeout))
	operator, failure := r.Account.UpsertOperator(requestCtx, r.operator(uid))
	cancel()
	if ctx.Err() != nil {
		return false, ctx.Err() // the manager stops, so the account did not fail
	}
	reportCtx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	return failure == nil, r.reportHeartbeat(reportCtx, operator, failure)
}

// reportHeartbeat writes the result of a heartbeat. The object may have changed while the account
// was asked.
func (r *Registration) reportHeartbeat(ctx context.Context, operator *account.Operator, failure error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempted, r.lastError = true, failure
	if failure == nil {
		r.confirmed.Store(r.Clock.Now().Unix())
	}
	object, err := r.ensureObject(ctx)
	if err != nil {
		return err
	}
	next := object.DeepCopy()
	if failure == nil {
		if known := next.Status.OperatorID; known != "" && known != operator.ID {
			r.Endpoints.RequestList()
		}
		next.Status.OperatorID = operator.ID
	}
	return r.updateStatus(ctx, object, next)
}

// ReportSecondRelease writes that this release is inactive because release other works in its
// namespace. It is called while this manager does not lead.
func (r *Registration) ReportSecondRelease(ctx context.Context, other string) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	object, err := r.ensureObject(ctx)
	if err != nil {
		return err
	}
	next := object.DeepCopy()
	for _, unknown := range []string{v1alpha1.ConditionAPIReachable, v1alpha1.ConditionEdgeReachable} {
		meta.RemoveStatusCondition(&next.Status.Conditions, unknown)
	}
	r.setCondition(&next.Status, object.Generation, newCondition(
		v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonSecondRelease, fmt.Sprintf(
			"release %s is inactive: release %s runs in this namespace; install each in a namespace of its own",
			object.Name, other)))
	return r.writeStatus(ctx, object, next)
}

// prepare creates or repairs the object and returns the cluster's uid for a heartbeat.
func (r *Registration) prepare(ctx context.Context) (uid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.ensureObject(ctx); err != nil {
		return "", err
	}
	return r.namespaceUID(ctx)
}

// updateStatus completes the status of next and writes it if it differs from the object's.
func (r *Registration) updateStatus(ctx context.Context, object, next *v1alpha1.KubernetesOperator) error {
	r.setHeartbeatConditions(&next.Status, object.Generation)
	r.setSourceConditions(&next.Status, object.Generation)
	r.setEdgeCondition(&next.Status, object.Generation)
	r.setOptionalCondition(&next.Status, object.Generation, v1alpha1.ConditionServiceImportsReady, r.ServiceImports)
	r.setOptionalCondition(&next.Status, object.Generation, v1alpha1.ConditionNetworkPoliciesWritten,
		r.NetworkPolicies)
	r.setOptionalCondition(&next.Status, object.Generation, v1alpha1.ConditionKeysKnown, r.Keys)
	if r.projectedForwarders != nil {
		next.Status.ProjectedForwarders = *r.projectedForwarders
	}
	if r.networkPolicies != nil || r.NetworkPolicies == nil {
		next.Status.NetworkPolicies = ptr.Deref(r.networkPolicies, nil)
	}
	if err := r.countEndpoints(ctx, &next.Status); err != nil {
		return err
	}
	return r.writeStatus(ctx, object, next)
}

// writeStatus writes the status if it differs.
func (r *Registration) writeStatus(ctx context.Context, object, next *v1alpha1.KubernetesOperator) error {
	if equality.Semantic.DeepEqual(object.Status, next.Status) {
		return nil
	}
	err := r.Client.Status().Update(ctx, next)
	r.setLatest(object.ResourceVersion, next, err)
	if err != nil {
		return fmt.Errorf("writing the status of KubernetesOperator %s: %w", object.Name, err)
	}
	r.emitEvents(next, object.Status.Conditions)
	return nil
}

// ensureObject returns the KubernetesOperator, created or repaired if necessary.
func (r *Registration) ensureObject(ctx context.Context) (*v1alpha1.KubernetesOperator, error) {
	key := client.ObjectKey{Namespace: r.Anchors.Installation.Namespace, Name: r.Anchors.Installation.Release}
	current := &v1alpha1.KubernetesOperator{}
	err := r.Client.Get(ctx, key, current)
	if apierrors.IsNotFound(err) && r.latest != nil {
		err = r.Live.Get(ctx, key, current) // the cache may not have it yet
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading KubernetesOperator %s: %w", key, err)
	}
	if slices.Contains(r.replaced, current.ResourceVersion) {
		current = r.latest
	}
	owners, ownersErr := r.Anchors.Owners(ctx)
	if ownersErr != nil {
		return nil, ownersErr
	}
	missing := apierrors.IsNotFound(err)
	next := current.DeepCopy()
	next.Namespace, next.Name = key.Namespace, key.Name
	next.Spec = r.Spec
	next.OwnerReferences = owners.Local
	r.Anchors.Installation.Mark(next)
	switch {
	case missing:
		err := r.Client.Create(ctx, next)
		r.setLatest("", next, err)
		if err != nil {
			return nil, fmt.Errorf("creating KubernetesOperator %s: %w", key, err)
		}
	case !equality.Semantic.DeepEqual(current, next):
		err := r.Client.Update(ctx, next)
		r.setLatest(current.ResourceVersion, next, err)
		if err != nil {
			return nil, fmt.Errorf("updating KubernetesOperator %s: %w", key, err)
		}
	}
	return next, nil
}

func (r *Registration) operator(clusterUID string) account.Operator {
	return account.Operator{
		Description:     r.Spec.Description,
		EnabledFeatures: r.features(),
		Deployment: account.OperatorDeployment{
			Name: r.Anchors.Installation.Release, Namespace: r.Anchors.Installation.Namespace, Version: r.Version,
			ClusterName: r.ClusterName,
		},
		Binding:    r.binding(),
		ClusterUID: clusterUID,
	}
}

func (r *Registration) features() []string {
	if r.Spec.BindingEnabled {
		return []string{account.FeatureBindings}
	}
	return []string{}
}

func (r *Registration) binding() *account.OperatorBinding {
	if !r.Spec.BindingEnabled {
		return nil
	}
	b := &account.OperatorBinding{EndpointSelectors: []string{}}
	if r.Spec.EndpointSelector != "" {
		b.EndpointSelectors = append(b.EndpointSelectors, r.Spec.EndpointSelector)
	}
	return b
}

// namespaceUID returns the UID of the operator's own Namespace, which distinguishes this
// installation from one with the same names in another cluster.
func (r *Registration) namespaceUID(ctx context.Context) (string, error) {
	if r.clusterUID != "" {
		return r.clusterUID, nil
	}
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKey{Name: r.Anchors.Installation.Namespace}, &ns); err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", r.Anchors.Installation.Namespace, err)
	}
	r.clusterUID = string(ns.UID)
	return r.clusterUID, nil
}

// sleep waits for d, for the end of the context or until changed is closed.
func sleep(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-time.After(d):
	}
}
