// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/controller/namespaces"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints,verbs=get;list;watch
// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints/status,verbs=update
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,namespace=fairlead,resources=events,verbs=create;patch

// again is when a write that lost against another is tried once more.
const again = 50 * time.Millisecond

// Account answers what the account says about a hostname, from memory.
type Account interface {
	// Hostname returns whether the account has been read at all, how many endpoints the hostname is to
	// have, and which of its URLs have none online.
	Hostname(hostname string) (known bool, endpoints int, offline []string)
}

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache, which holds the Services of all namespaces as Trim leaves them, or
	// those of the operator's alone.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Layout Layout
	// Owners returns the owner references of the chart's anchors.
	Owners  func(context.Context) (installation.Owners, error)
	Account Account
	// Approved reports whether the spec is one that endpointsync wrote; when it becomes one is an
	// event.
	Approved func(*v1alpha1.BoundEndpoint) bool
	// Forwarders says how many forwarders listen for a hostname, and what is in their way.
	Forwarders Forwarders
	Recorder   events.EventRecorder
	Now        func() time.Time
	// Namespaces says which namespaces get Services.
	Namespaces namespaces.Policy
	// Targets reads the Services of listed namespaces, of which Client then knows nothing. Nil where
	// Namespaces lists none.
	Targets *namespaces.Informers
	// TargetOwner returns the owner reference for the target Services of a namespace; an error of the
	// API server's is the namespace's refusal.
	TargetOwner func(ctx context.Context, namespace string) (metav1.OwnerReference, error)
	// Distrust has the anchors of a namespace's Services read anew; a Service that is gone may have
	// gone with them.
	Distrust func(namespace string)
	// TargetRole is the name of the Role and the RoleBinding that a listed namespace must have, for
	// messages.
	TargetRole string
	// Ending says that the operator's own namespace is being deleted, so that no target Service may
	// stay. Nil: never.
	Ending func() bool
	// TakeoverDelay is how long the name of a foreign Service has to be free before it is taken.
	TakeoverDelay time.Duration
	// OrphanDelay is how long Services stay whose BoundEndpoint is gone: one that was deleted by hand
	// comes back.
	OrphanDelay time.Duration
}

// Reconciler makes Services of BoundEndpoints.
type Reconciler struct {
	Options
	takeover  *takeover
	addresses *addresses
	pace      *pace
	novices   *novices
	replaced  *replaced

	mu       sync.Mutex
	orphaned map[string]time.Time // hostname -> since when its Services have no object
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{
		Options: o, takeover: newTakeover(o.TakeoverDelay), addresses: &addresses{tries: map[client.ObjectKey]int{}},
		pace: newPace(), novices: newNovices(),
		replaced: newReplaced(), orphaned: map[string]time.Time{},
	}
}

// Reconcile brings the Services of one hostname to what its BoundEndpoint says, and the status to
// what was found.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.BoundEndpoint{}
	err := r.Client.Get(ctx, req.NamespacedName, b)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading BoundEndpoint %s: %w", req.Name, err)
	}
	if err != nil || !r.Layout.Installation.Owns(b) {
		r.forget(req.Name)
		r.replaced.forget(req.Name)
		return r.orphans(ctx, req.Name)
	}
	r.adopted(req.Name)
	if b.DeletionTimestamp != nil || !r.Approved(b) {
		return ctrl.Result{}, nil
	}
	now, found := r.act(ctx, b)
	switch {
	case found != nil && found.stale:
		return ctrl.Result{RequeueAfter: again}, nil
	case found != nil && found.pending:
		return ctrl.Result{}, nil
	}
	return r.report(ctx, b, now, found)
}

// outcome is what act made, and which Services there are now.
type outcome struct {
	upstream *corev1.Service // nil where there is none, or none that is known to be good
	services []v1alpha1.ServiceRef
}

// act makes or removes the Services.
func (r *Reconciler) act(ctx context.Context, b *v1alpha1.BoundEndpoint) (outcome, *problem) {
	if b.Spec.State == v1alpha1.StateReleased {
		return r.clear(ctx, b, nil)
	}
	if refused := r.refused(ctx, b.Spec.Namespace); refused != nil {
		return r.clear(ctx, b, refused)
	}
	if r.lost(ctx, b) {
		r.Distrust(b.Spec.Namespace)
	}
	owners, err := r.Owners(ctx)
	if apierrors.IsNotFound(err) {
		missing := &problem{reason: v1alpha1.ReasonAnchorMissing, message: err.Error(), after: retry}
		return outcome{services: b.Status.Services}, missing
	}
	if err != nil {
		return outcome{services: b.Status.Services}, &problem{reason: v1alpha1.ReasonAPIError, message: err.Error(), err: err}
	}
	upstream, target := r.Layout.upstream(b, owners.Local), r.Layout.target(b, metav1.OwnerReference{})
	madeUpstream, found := r.ensure(ctx, b, upstream)
	var madeTarget *corev1.Service
	if found == nil {
		madeTarget, found = r.project(ctx, b, target)
	}
	services := append(remembered(b, upstream, madeUpstream), remembered(b, target, madeTarget)...)
	if found != nil && (madeUpstream == nil || found.stale || found.err != nil) {
		return outcome{madeUpstream, services}, found // what an earlier projection id has stays until its successor stands
	}
	left, err := r.removeAll(ctx, b.Name, b.Status.Services, client.ObjectKeyFromObject(upstream),
		client.ObjectKeyFromObject(target))
	if err != nil && found == nil {
		found = problemOf(err)
	}
	return outcome{madeUpstream, append(services, left...)}, found
}

// clear removes the Services of a BoundEndpoint that is to have none.
func (r *Reconciler) clear(ctx context.Context, b *v1alpha1.BoundEndpoint, because *problem) (outcome, *problem) {
	left, err := r.removeAll(ctx, b.Name, b.Status.Services)
	if err != nil {
		because = problemOf(err)
	}
	return outcome{services: left}, because
}

// orphans removes Services of ours that have had no BoundEndpoint for OrphanDelay and whose
// hostname the account does not have.
func (r *Reconciler) orphans(ctx context.Context, hostname string) (ctrl.Result, error) {
	services, err := r.owned(ctx, hostname, nil)
	var unread *namespaces.NotRead
	if err != nil && !errors.As(err, &unread) { // that it is read is an event
		return ctrl.Result{}, err
	}
	if len(services) == 0 {
		r.adopted(hostname)
		return ctrl.Result{}, nil
	}
	if r.ending() {
		_, err = r.removeAll(ctx, hostname, nil)
		return ctrl.Result{}, err
	}
	if known, endpoints, _ := r.Account.Hostname(hostname); !known || endpoints > 0 {
		return ctrl.Result{RequeueAfter: r.OrphanDelay}, nil // its object is about to be rebuilt
	}
	if wait := r.OrphanDelay - r.Now().Sub(r.orphanedSince(hostname)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	_, err = r.removeAll(ctx, hostname, nil)
	return ctrl.Result{}, err
}

func (r *Reconciler) orphanedSince(hostname string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.orphaned[hostname]; !ok {
		r.orphaned[hostname] = r.Now()
	}
	return r.orphaned[hostname]
}

func (r *Reconciler) adopted(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.orphaned, hostname)
}
