// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
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
	// SealKeys returns the fingerprints of the keys by which the URL's agents that are online seal
	// connections, as the service says: "" among them if some do not seal.
	SealKeys(u account.EndpointURL) []string
}

// NetworkPolicies reports whether the network restricts a hostname's ports;
// *networkpolicy.Reconciler implements it.
type NetworkPolicies interface {
	// Written reports whether the policies of the object's ports are written; the error is what
	// prevents it. While it is false, a notification follows.
	Written(*v1alpha1.BoundEndpoint) (bool, error)
}

// Approvals reports which specs endpointsync wrote; *endpointsync.Approvals implements it.
type Approvals interface {
	// Approved reports whether endpointsync wrote the spec. An event follows when it becomes so.
	Approved(*v1alpha1.BoundEndpoint) bool
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
	Anchors   *installation.Anchors
	Account   Account
	Approvals Approvals
	// NetworkPolicies must be written before Services lead to a port.
	NetworkPolicies NetworkPolicies
	// Forwarders reports which forwarders listen for a hostname.
	Forwarders Forwarders
	// Trust decides which connections are sealed; nil: none are.
	Trust Trust
	// Addresses provides what EndpointSlices list.
	Addresses forwarderaddresses.Provider
	// Target configures the Services in the namespaces of the hostnames.
	Target   TargetOptions
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// TakeoverDelay is how long the name of a foreign Service must be free before it is used.
	TakeoverDelay time.Duration
	// Latency measures projections; nil: not measured.
	Latency *projectionlatency.Tracker
}

// Reconciler writes the Services of BoundEndpoints.
type Reconciler struct {
	Options
	requests      *requestMapper
	targets       *targetNamespaces
	services      *serviceWriter
	projections   *switcher
	status        *statusWriter
	orphanedSince sync.Map // since when the Services of a hostname have no object
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	own := o.Layout.Installation
	r := &Reconciler{Options: o, requests: &requestMapper{o.Client, own, o.Target.Namespaces},
		targets: &targetNamespaces{o.Target, o.Client, own.Namespace},
		status: &statusWriter{client: o.Client, layout: o.Layout, account: o.Account, forwarders: o.Forwarders,
			trust: o.Trust, recorder: o.Recorder, clock: o.Clock, throttle: newWriteThrottle()}}
	writer := &owned.Writer{Client: o.Client, Live: o.Live, Installation: own, Clock: o.Clock}
	r.services = &serviceWriter{client: o.Client, live: o.Live, targets: o.Target.Services, own: own,
		anchors: o.Layout.Anchors, owned: writer, takeover: newNameTakeover(o.TakeoverDelay), clock: o.Clock,
		forwarders: o.Layout.PodLabels(), requests: r.requests}
	slices := &sliceWriter{client: o.Client, live: o.Live, layout: o.Layout, addresses: o.Addresses, owned: writer,
		none: o.Target.WithoutSlices, uncached: o.Target.Services != nil}
	r.projections = &switcher{&projector{layout: o.Layout, anchors: o.Anchors, targets: r.targets,
		services: r.services, slices: slices, addresses: o.Addresses,
		switches: &switches{services: r.services, clock: o.Clock}}, o.Clock}
	return r
}

// Reconcile writes the Services of one hostname as its BoundEndpoint specifies, and the status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.BoundEndpoint{}
	err := r.Client.Get(ctx, req.NamespacedName, b)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading BoundEndpoint %s: %w", req.Name, err)
	}
	if err != nil || !r.Layout.Installation.Owns(b) {
		r.status.forget(req.Name)
		r.projections.projector.forget(req.Name)
		return r.removeOrphans(ctx, req.Name)
	}
	r.orphanedSince.Delete(req.Name)
	if b.DeletionTimestamp != nil || !r.Approvals.Approved(b) {
		return ctrl.Result{}, nil
	}
	now, found := r.ensureServices(ctx, b)
	if found != nil && found.Quiet {
		return ctrl.Result{RequeueAfter: found.RetryAfter}, nil
	}
	r.recordLatency(b, found)
	result, err := r.status.report(ctx, b, now, found)
	if now.requeueAfter > 0 && (result.RequeueAfter == 0 || now.requeueAfter < result.RequeueAfter) {
		result.RequeueAfter = now.requeueAfter
	}
	return result, err
}

// policiesMissing returns a problem if the NetworkPolicies of the ports are not written. Until they
// are, Services that exist stay as they are, and no forwarder learns of a new port.
func (r *Reconciler) policiesMissing(b *v1alpha1.BoundEndpoint) *status.Problem {
	written, err := r.NetworkPolicies.Written(b)
	switch {
	case written:
		return nil
	case err != nil:
		return status.Problemf(v1alpha1.ReasonNetworkPolicyFailed, "%s", err)
	}
	return status.Pending()
}

// ensureServices makes or removes the Services.
func (r *Reconciler) ensureServices(ctx context.Context, b *v1alpha1.BoundEndpoint) (serviceState, *status.Problem) {
	if b.Spec.State == v1alpha1.StateReleased {
		return r.removeServices(ctx, b, nil)
	}
	if b.Spec.Cluster == "" {
		if refused := r.targets.refused(ctx, b.Spec.Namespace); refused != nil {
			return r.removeServices(ctx, b, refused)
		}
	}
	unchanged := serviceState{services: b.Status.Services}
	if missing := r.policiesMissing(b); missing != nil {
		return unchanged, missing
	}
	if b.Spec.Cluster != "" {
		return r.removeServices(ctx, b, nil)
	}
	owners, err := r.Anchors.Owners(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return unchanged, &status.Problem{Reason: v1alpha1.ReasonAnchorMissing, Message: err.Error(),
			RetryAfter: owned.RefusalRetry}
	case err != nil:
		return unchanged, &status.Problem{Reason: v1alpha1.ReasonAPIError, Message: err.Error(), Err: err}
	}
	return r.projections.ensure(ctx, b, owners)
}

// removeServices removes the Services of a BoundEndpoint that must not have any.
func (r *Reconciler) removeServices(
	ctx context.Context, b *v1alpha1.BoundEndpoint, reason *status.Problem,
) (serviceState, *status.Problem) {
	r.projections.projector.stop(b.Name)
	left, err := r.services.removeAll(ctx, b.Name, b.Status.Services)
	if err != nil {
		reason = problemFromError(err)
	}
	return serviceState{services: left}, reason
}

// problemFromError classifies an error of the API server, nil for none.
func problemFromError(err error) *status.Problem {
	if notSynced, ok := errors.AsType[*namespaces.NotSyncedError](err); ok && notSynced.Err == nil {
		return status.Pending()
	}
	found := owned.ProblemOf(err)
	if found != nil && found.Reason == v1alpha1.ReasonForbidden {
		found.Reason = v1alpha1.ReasonNamespaceForbidden
	}
	return found
}

// removeOrphans removes Services of ours that have had no BoundEndpoint for Target.OrphanDelay and whose
// hostname the account does not have.
func (r *Reconciler) removeOrphans(ctx context.Context, hostname string) (ctrl.Result, error) {
	services, err := r.services.list(ctx, hostname, nil)
	if err != nil && !errors.As(err, new(*namespaces.NotSyncedError)) { // an event follows when it is read
		return ctrl.Result{}, err
	}
	if len(services) == 0 {
		r.orphanedSince.Delete(hostname)
		return ctrl.Result{}, nil
	}
	if r.Target.Uninstall.NamespaceTerminating() {
		_, err = r.services.removeAll(ctx, hostname, nil)
		return ctrl.Result{}, err
	}
	if known, endpoints, _ := r.Account.Availability(hostname); !known || endpoints > 0 {
		return ctrl.Result{RequeueAfter: r.Target.OrphanDelay}, nil // endpointsync is about to re-create its object
	}
	since, _ := r.orphanedSince.LoadOrStore(hostname, r.Clock.Now())
	if wait := r.Target.OrphanDelay - r.Clock.Now().Sub(since.(time.Time)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if found := r.projections.projector.removeSlices(ctx, hostname); found != nil && found.Err != nil {
		return ctrl.Result{}, found.Err
	}
	_, err = r.services.removeAll(ctx, hostname, nil)
	return ctrl.Result{}, err
}
