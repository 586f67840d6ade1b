// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/projectionlatency"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints,verbs=get;list;watch;create;update;delete

const (
	workers = 4
	// conflictRetry is the delay before a write that lost against a concurrent one, or was based on
	// a stale cache, is repeated.
	conflictRetry = 50 * time.Millisecond
	// refusalRetry is the delay before a write that the API server refused, or a port allocation,
	// is repeated.
	refusalRetry = 30 * time.Second
)

// Reconciler writes the specs of BoundEndpoints. Only the leader runs it.
type Reconciler struct {
	// Client reads from the cache.
	Client  client.Client
	Anchors *installation.Anchors
	Set     *Set
	Ports   *Ports
	Delays  Delays
	Clock   clock.PassiveClock
	// Approvals records the specs that this manager wrote.
	Approvals *Approvals
	// Report emits events about endpoints that are not projected.
	Report *Reporter
	// Latency measures projections; nil: not measured.
	Latency *projectionlatency.Tracker

	seedMu sync.Mutex
	seeded bool
}

// SetupWithManager adds the controller. changes names the hostnames whose desired state changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, changes source.Source) error {
	specOrMarks := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.AnnotationChangedPredicate{}, predicate.NewPredicateFuncs(lacksOwner))
	return ctrl.NewControllerManagedBy(mgr).
		Named("endpointsync").
		For(&v1alpha1.BoundEndpoint{}, builder.WithPredicates(specOrMarks)).
		WatchesRawSource(changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// lacksOwner reports whether the garbage collector took an owner of the object away, as it does
// when an anchor is deleted.
func lacksOwner(o client.Object) bool { return installation.RecheckAfter(o.GetOwnerReferences()) > 0 }

// Reconcile writes the object of one hostname as desired.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.Set.SyncedOrAwait(req.Name) {
		return ctrl.Result{}, nil
	}
	if err := r.seed(ctx); err != nil {
		return ctrl.Result{}, err
	}
	current := &v1alpha1.BoundEndpoint{}
	err := r.Client.Get(ctx, req.NamespacedName, current)
	if apierrors.IsNotFound(err) {
		current = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading BoundEndpoint %s: %w", req.Name, err)
	}
	desired := r.Set.Desired(req.Name)
	r.Report.ReportRefused(req.Name, desired.Refused)
	if current != nil && !r.isOurs(ctx, current) {
		if len(desired.Endpoints) > 0 {
			r.Report.ReportForeignObject(current)
		}
		r.Latency.Drop(req.Name)
		return ctrl.Result{}, nil // an event follows when it is deleted or labelled as ours
	}
	spec, now := r.trustedSpec(current), r.Clock.Now()
	next, exhausted := planner{now: now, delays: r.Delays, ports: r.Ports, hostname: req.Name,
		desired: desired}.plan(spec)
	r.Report.ReportPortsExhausted(req.Name, exhausted, r.Ports.portRange)
	written, err := r.write(ctx, req.Name, current, next)
	if err != nil {
		return r.handleWriteError(ctx, req.Name, err)
	}
	r.Approvals.approve(req.Name, written)
	result := r.finish(req.Name, next, desired, now, len(exhausted) > 0)
	if written != nil && result.RequeueAfter == 0 {
		result.RequeueAfter = installation.RecheckAfter(written.OwnerReferences)
	}
	return result, nil
}

// isOurs reports whether this installation made the object. One that lost its labels or annotations
// still has our anchor as its owner, and gets them back.
func (r *Reconciler) isOurs(ctx context.Context, o *v1alpha1.BoundEndpoint) bool {
	if r.Anchors.Installation.Owns(o) {
		return true
	}
	owners, err := r.Anchors.Owners(ctx)
	return err == nil && slices.ContainsFunc(o.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return slices.Contains(owners.Local, owner)
	})
}

// finish releases what the written object no longer needs, and returns when to reconcile it again.
func (r *Reconciler) finish(
	hostname string, spec *v1alpha1.BoundEndpointSpec, desired Desired, now time.Time, exhausted bool,
) ctrl.Result {
	var kept []int32
	var result ctrl.Result
	if spec != nil {
		kept = portsOf(spec)
		result.RequeueAfter = nextDeadline(spec, desired.MayRelease, now)
	}
	r.Set.SetPorts(hostname, kept)
	r.Latency.Retain(hostname, kept)
	r.Set.ForgetDeleted(hostname, kept)
	r.Report.ReportRejected(hostname, nil)
	r.Ports.releaseExcept(hostname, func(port int32) bool { return slices.Contains(kept, port) })
	if exhausted && (result.RequeueAfter == 0 || result.RequeueAfter > refusalRetry) {
		result.RequeueAfter = refusalRetry
	}
	return result
}

// write creates, updates or deletes the object if it differs. It returns the resulting object, or
// nil.
func (r *Reconciler) write(
	ctx context.Context, hostname string, current *v1alpha1.BoundEndpoint, spec *v1alpha1.BoundEndpointSpec,
) (*v1alpha1.BoundEndpoint, error) {
	if spec == nil {
		return nil, r.remove(ctx, current)
	}
	owners, err := r.Anchors.Owners(ctx)
	if err != nil {
		return nil, err
	}
	spec.Service, spec.Namespace, spec.Cluster = splitHostname(hostname)
	own := r.Anchors.Installation
	next := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: hostname}}
	if current != nil {
		next = current.DeepCopy()
	}
	next.Spec = *spec
	next.OwnerReferences = owners.Local
	own.Mark(next)
	switch {
	case current == nil:
		if err := r.Client.Create(ctx, next); err != nil {
			return nil, fmt.Errorf("creating BoundEndpoint %s: %w", hostname, err)
		}
		log.FromContext(ctx).Info("Created BoundEndpoint", "endpoints", len(spec.Endpoints))
		if spec.Cluster == "" && isTopLevelDomain(spec.Namespace) && r.Report.ReportTopLevelDomain(next) {
			log.FromContext(ctx).
				Info(
					"The namespace is named like a top-level domain: pods that look up this name on the internet " +
						"reach the endpoint " +
						"instead")
		}
	case !equality.Semantic.DeepEqual(current, next):
		if err := r.Client.Update(ctx, next); err != nil {
			return nil, fmt.Errorf("updating BoundEndpoint %s: %w", hostname, err)
		}
		log.FromContext(ctx).Info("Updated BoundEndpoint", "endpoints", len(spec.Endpoints), "state", spec.State)
	}
	return next, nil
}

func (r *Reconciler) remove(ctx context.Context, current *v1alpha1.BoundEndpoint) error {
	if current == nil {
		return nil
	}
	err := r.Client.Delete(ctx, current,
		client.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting BoundEndpoint %s: %w", current.Name, err)
	}
	log.FromContext(ctx).Info("Deleted BoundEndpoint")
	return nil
}

func (r *Reconciler) handleWriteError(ctx context.Context, hostname string, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		log.FromContext(ctx).V(1).Info("Trying again with a newer copy", "cause", err.Error())
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case apierrors.IsInvalid(err):
		r.Report.ReportRejected(hostname, err)
		r.Latency.Drop(hostname)
		return ctrl.Result{RequeueAfter: refusalRetry}, nil
	}
	return ctrl.Result{}, err
}

// seed learns, once, which target ports are in use: first those of observed objects, oldest first,
// then those of upstream Services whose object is missing or was not observed.
func (r *Reconciler) seed(ctx context.Context) error {
	r.seedMu.Lock()
	defer r.seedMu.Unlock()
	if r.seeded {
		return nil
	}
	var objects v1alpha1.BoundEndpointList
	if err := r.Client.List(ctx, &objects, client.InNamespace(r.Anchors.Installation.Namespace)); err != nil {
		return fmt.Errorf("listing BoundEndpoints: %w", err)
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services,
		client.MatchingLabels{installation.Label: r.Anchors.Installation.ID()}); err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	objects.Items = slices.DeleteFunc(objects.Items, func(o v1alpha1.BoundEndpoint) bool { return !r.isOurs(ctx, &o) })
	observed := slices.Clone(objects.Items)
	observed = slices.DeleteFunc(observed, func(o v1alpha1.BoundEndpoint) bool { return !o.Observed() })
	r.Ports.seed(r.Anchors.Installation, observed, services.Items)
	projected := map[string][]int32{}
	for i := range objects.Items {
		if ports := portsOf(r.trustedSpec(&objects.Items[i])); len(ports) > 0 {
			projected[objects.Items[i].Name] = ports
		}
	}
	r.Set.Seed(projected)
	r.seeded = true
	return nil
}

func portsOf(spec *v1alpha1.BoundEndpointSpec) []int32 {
	ports := make([]int32, len(spec.Ports))
	for i := range spec.Ports {
		ports[i] = spec.Ports[i].Port
	}
	return ports
}

// Approvals records the specs that this manager wrote, or found to be what it would write, until
// boundendpoint has recorded them in the status: no Service is made and no port opened for a spec
// that another client wrote. The zero value is empty. It is safe for concurrent use.
type Approvals struct {
	// Changes is notified of the hostname of each approval; nil: nothing is.
	Changes *notify.Source

	mu       sync.Mutex
	approved map[string]approval
}

type approval struct {
	uid        types.UID
	generation int64
}

// Approved reports whether the object's spec is approved, now or by an earlier manager. The object
// may be older than the approved one, as the caller reads it from a cache: the approval stays then.
func (a *Approvals) Approved(b *v1alpha1.BoundEndpoint) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.approved[b.Name]
	if !b.Observed() {
		return now == approval{b.UID, b.Generation}
	}
	if now.uid == b.UID && now.generation <= b.Generation {
		delete(a.approved, b.Name)
	}
	return true
}

// approve approves the object's current spec. nil means that the hostname has no object.
func (a *Approvals) approve(hostname string, b *v1alpha1.BoundEndpoint) {
	if b == nil || b.Observed() {
		a.mu.Lock()
		delete(a.approved, hostname)
		a.mu.Unlock()
		return
	}
	a.mu.Lock()
	if a.approved == nil {
		a.approved = map[string]approval{}
	}
	now := approval{b.UID, b.Generation}
	changed := a.approved[hostname] != now
	a.approved[hostname] = now
	a.mu.Unlock()
	if changed && a.Changes != nil {
		a.Changes.Notify(hostname)
	}
}

// trustedSpec returns the object's spec without ports that only an unobserved spec names: neither a
// manager nor a Service has them. It is nil for no object.
func (r *Reconciler) trustedSpec(o *v1alpha1.BoundEndpoint) *v1alpha1.BoundEndpointSpec {
	if o == nil {
		return nil
	}
	if o.Observed() {
		return &o.Spec
	}
	spec := o.Spec.DeepCopy()
	spec.Ports = slices.DeleteFunc(spec.Ports, func(p v1alpha1.BoundPort) bool {
		return !r.Ports.isHeldBy(portKey{o.Name, p.Port}, p.TargetPort)
	})
	return spec
}
