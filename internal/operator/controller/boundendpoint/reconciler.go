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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/projectionlatency"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints,verbs=get;list;watch
// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints/status,verbs=update
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,namespace=fairlead,resources=events,verbs=create;patch

// Account reports the availability of a hostname in the account, from memory.
type Account interface {
	// Availability returns whether the account has been read, how many endpoints the hostname has,
	// and which of its URLs have none online.
	Availability(hostname string) (known bool, endpoints int, offline []string)
}

// NetworkPolicies reports whether the network restricts a hostname's ports;
// *networkpolicy.Reconciler implements it.
type NetworkPolicies interface {
	// Written reports whether the policies of the object's ports are written; the error is what
	// prevents it. While it is false, a notification follows.
	Written(*v1alpha1.BoundEndpoint) (bool, error)
}

// Options configure a Reconciler.
type Options struct {
	// Client reads from the cache, which holds the Services of all namespaces, reduced by
	// ServiceTransform, or those of the operator's namespace only.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Layout Layout
	// Anchors own what is written. An error of the API server for the anchors of a namespace counts
	// as the namespace's refusal.
	Anchors *installation.Anchors
	Account Account
	// Approved reports whether endpointsync wrote the spec. An event follows when it becomes so.
	Approved func(*v1alpha1.BoundEndpoint) bool
	// NetworkPolicies must be written before Services lead to a port.
	NetworkPolicies NetworkPolicies
	// Forwarders reports which forwarders listen for a hostname.
	Forwarders Forwarders
	// Addresses provides what EndpointSlices list.
	Addresses Addresses
	// WithoutSlices is set where the installation has no right to EndpointSlices: all hostnames are
	// projected by ExternalName.
	WithoutSlices bool
	// Projection of namespaces without a label of their own.
	Projection v1alpha1.Projection
	Recorder   events.EventRecorder
	Clock      clock.PassiveClock
	// Namespaces decides which namespaces get Services.
	Namespaces namespaces.Policy
	// Targets reads the Services of listed namespaces, which Client then does not cover. Nil if
	// Namespaces lists none.
	Targets *namespaces.Informers
	// TargetRole is the name of the Role and the RoleBinding that a listed namespace must have;
	// messages name it.
	TargetRole string
	// Uninstall reports whether the operator's own namespace is being deleted, so that no target
	// Service may stay. Nil: never.
	Uninstall *namespaces.UninstallCleanup
	// TakeoverDelay is how long the name of a foreign Service must be free before it is used.
	TakeoverDelay time.Duration
	// OrphanDelay is how long Services stay whose BoundEndpoint is gone: one that was deleted by
	// hand is re-created.
	OrphanDelay time.Duration
	// Latency measures projections; nil: not measured.
	Latency *projectionlatency.Tracker
}

// Reconciler writes the Services of BoundEndpoints.
type Reconciler struct {
	Options
	takeover *nameTakeover
	throttle *writeThrottle
	switches switches
	objects  owned.Writer

	// By hostname:
	firstStatusSince sync.Map // since when the first status of the object's spec is due
	lingeringSince   sync.Map // since when it has Services that only stay for pods that know their address
	replacedVersions sync.Map // the resourceVersion that the last status write replaced
	orphanedSince    sync.Map // since when its Services have no object

	// By a Service's key:
	createdServices sync.Map // it was created, and the cache has not had it since
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, takeover: newNameTakeover(o.TakeoverDelay), throttle: newWriteThrottle(),
		objects: owned.Writer{Client: o.Client, Live: o.Live, Installation: o.Layout.Installation}}
}

// Reconcile writes the Services of one hostname as its BoundEndpoint specifies, and the status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.BoundEndpoint{}
	err := r.Client.Get(ctx, req.NamespacedName, b)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading BoundEndpoint %s: %w", req.Name, err)
	}
	if err != nil || !r.Layout.Installation.Owns(b) {
		r.forget(req.Name)
		r.Addresses.Forget(req.Name)
		r.switches.end(req.Name)
		r.lingeringSince.Delete(req.Name)
		r.objects.Forget(req.Name)
		r.replacedVersions.Delete(req.Name)
		return r.removeOrphans(ctx, req.Name)
	}
	r.orphanedSince.Delete(req.Name)
	if b.DeletionTimestamp != nil || !r.Approved(b) {
		return ctrl.Result{}, nil
	}
	now, found := r.ensureServices(ctx, b)
	switch {
	case found != nil && found.stale:
		return ctrl.Result{RequeueAfter: status.ConflictRetry}, nil
	case found != nil && found.pending:
		return ctrl.Result{}, nil
	}
	r.recordLatency(b, found)
	result, err := r.reportStatus(ctx, b, now, found)
	if now.requeueAfter > 0 && (result.RequeueAfter == 0 || now.requeueAfter < result.RequeueAfter) {
		result.RequeueAfter = now.requeueAfter
	}
	return result, err
}

// policiesMissing returns a problem if the NetworkPolicies of the ports are not written. Until they
// are, Services that exist stay as they are, and no forwarder learns of a new port.
func (r *Reconciler) policiesMissing(b *v1alpha1.BoundEndpoint) *problem {
	written, err := r.NetworkPolicies.Written(b)
	switch {
	case written:
		return nil
	case err != nil:
		return &problem{reason: v1alpha1.ReasonNetworkPolicyFailed, message: err.Error()}
	}
	return &problem{pending: true}
}

// serviceState is the result of ensureServices.
type serviceState struct {
	projection v1alpha1.Projection // empty: as it was
	// addressed is the Service with the ClusterIP that pods call; nil if there is none, or its
	// state is not known.
	addressed    *corev1.Service
	services     []v1alpha1.ServiceRef
	ignoredLabel string        // the value of LabelProjection if it is none
	requeueAfter time.Duration // when to look again although nothing prevents a Service; 0: at the next event
}

// ensureServices makes or removes the Services.
func (r *Reconciler) ensureServices(ctx context.Context, b *v1alpha1.BoundEndpoint) (serviceState, *problem) {
	if b.Spec.State == v1alpha1.StateReleased {
		return r.removeServices(ctx, b, nil)
	}
	if b.Spec.Cluster == "" {
		if refused := r.namespaceRefused(ctx, b.Spec.Namespace); refused != nil {
			return r.removeServices(ctx, b, refused)
		}
	}
	if missing := r.policiesMissing(b); missing != nil {
		return serviceState{services: b.Status.Services}, missing
	}
	if b.Spec.Cluster != "" {
		return r.removeServices(ctx, b, nil)
	}
	owners, err := r.Anchors.Owners(ctx)
	if apierrors.IsNotFound(err) {
		missing := &problem{reason: v1alpha1.ReasonAnchorMissing, message: err.Error(), retryAfter: refusalRetry}
		return serviceState{services: b.Status.Services}, missing
	}
	if err != nil {
		return serviceState{services: b.Status.Services}, &problem{reason: v1alpha1.ReasonAPIError,
			message: err.Error(),
			err:     err}
	}
	return r.ensureProjection(ctx, b, owners)
}

// removeServices removes the Services of a BoundEndpoint that must not have any.
func (r *Reconciler) removeServices(
	ctx context.Context, b *v1alpha1.BoundEndpoint, reason *problem,
) (serviceState, *problem) {
	r.Addresses.Forget(b.Name)
	r.switches.end(b.Name)
	left, err := r.removeAll(ctx, b.Name, b.Status.Services)
	if err != nil {
		reason = problemFromError(err)
	}
	return serviceState{services: left}, reason
}

// removeOrphans removes Services of ours that have had no BoundEndpoint for OrphanDelay and whose
// hostname the account does not have.
func (r *Reconciler) removeOrphans(ctx context.Context, hostname string) (ctrl.Result, error) {
	services, err := r.owned(ctx, hostname, nil)
	var notSynced *namespaces.NotSyncedError
	if err != nil && !errors.As(err, &notSynced) { // an event follows when it is read
		return ctrl.Result{}, err
	}
	if len(services) == 0 {
		r.orphanedSince.Delete(hostname)
		return ctrl.Result{}, nil
	}
	if r.terminating() {
		_, err = r.removeAll(ctx, hostname, nil)
		return ctrl.Result{}, err
	}
	if known, endpoints, _ := r.Account.Availability(hostname); !known || endpoints > 0 {
		return ctrl.Result{RequeueAfter: r.OrphanDelay}, nil // endpointsync is about to re-create its object
	}
	since, _ := r.orphanedSince.LoadOrStore(hostname, r.Clock.Now())
	if wait := r.OrphanDelay - r.Clock.Now().Sub(since.(time.Time)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	_, err = r.removeAll(ctx, hostname, nil)
	return ctrl.Result{}, err
}
