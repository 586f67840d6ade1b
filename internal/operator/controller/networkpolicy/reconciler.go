// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// +kubebuilder:rbac:groups=networking.k8s.io,namespace=fairlead,resources=networkpolicies,verbs=get;list;watch;create;update;delete

const (
	// conflictRetry is the delay before a write that lost against a concurrent one is repeated.
	conflictRetry = 50 * time.Millisecond
	// refusalRetry is the delay before a write that the API server refused is repeated.
	refusalRetry = 30 * time.Second
)

// ErrNotRead means that the EndpointAccess objects are awaited: a pass is requested when they are
// read.
var ErrNotRead = errors.New("the EndpointAccess objects have not been read yet")

// Rules are the EndpointAccess objects.
type Rules interface {
	// Allowed returns what is allowed now, or ErrNotRead.
	Allowed(context.Context) (Access, error)
	// Passed is called after each pass. It must not block.
	Passed(context.Context)
}

// Forwarders are what enforces the rules.
type Forwarders interface {
	// NetworkPoliciesReliedOn reports whether forwarders leave the decision to the policies, or may do
	// so.
	NetworkPoliciesReliedOn() bool
}

// Options configure a Reconciler.
type Options struct {
	// Client reads from the cache, which holds the NetworkPolicies with our label; Live reads from
	// the API server.
	Client  client.Client
	Live    client.Reader
	Layout  Layout
	Anchors *installation.Anchors // Anchors own the policies.
	Rules   Rules
	// Disabled deletes all policies: none is wanted.
	Disabled bool
	// Waiting is notified after a pass of each hostname for which Written was false before.
	Waiting notify.Listener
	// Recorder is told of which objects the policies are written.
	Recorder Recorder
	// Forwarders may rely on policies that are not wanted, which stay then; nil: there are none.
	Forwarders Forwarders
}

// Reconciler writes the policies. Only the leader runs it, one pass at a time.
type Reconciler struct {
	Options
	passes   passes
	record   record
	requests *notify.Source
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, passes: newPasses(), requests: notify.New("", 0)}
}

// Reconcile writes all policies that differ from the desired ones.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	live, err := r.live(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if r.Disabled {
		return r.disable(ctx, live)
	}
	objects, err := r.boundEndpoints(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	access, err := r.Rules.Allowed(ctx)
	if err != nil {
		return result(err)
	}
	owners, err := r.Anchors.Owners(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.revokeChanged(ctx, access.written()); err != nil {
		return ctrl.Result{}, err
	}
	restricted := restrictedPorts(objects, access)
	found := r.write(ctx, live, restricted, owners.Local)
	if err := found.all(); apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	r.passes.setResult(found) // the record's write publishes it
	if err := r.writeRecord(ctx, without(access.written(), found, restricted)); err != nil {
		return ctrl.Result{}, err
	}
	r.Waiting.NotifyAll(r.passes.record(objects, access.generations, found))
	r.Rules.Passed(ctx)
	return nextPass(found.all(), owners.Local)
}

// nextPass returns when the next pass is due after one with these owners.
func nextPass(err error, owners []metav1.OwnerReference) (ctrl.Result, error) {
	if err != nil {
		return result(err)
	}
	return ctrl.Result{RequeueAfter: installation.RecheckAfter(owners)}, nil
}

// result returns when the next pass is due after the errors of one.
func result(err error) (ctrl.Result, error) {
	var status apierrors.APIStatus
	switch {
	case err == nil, errors.Is(err, ErrNotRead):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case errors.As(err, &status) && status.Status().Code < 500, errors.As(err, new(*foreignError)):
		return ctrl.Result{RequeueAfter: refusalRetry}, nil
	}
	return ctrl.Result{}, err
}

// restrictedPorts returns the restricted target ports of the objects, by number. Of two objects
// that name one target port the forwarders serve one; the port is closed.
func restrictedPorts(objects []v1alpha1.BoundEndpoint, access Access) []restrictedPort {
	holder := map[int32]string{}
	byTarget := map[int32]restrictedPort{}
	for i := range objects {
		spec := &objects[i].Spec
		for _, p := range spec.Ports {
			if p.State == v1alpha1.StateReleased {
				continue
			}
			other, doubled := holder[p.TargetPort]
			holder[p.TargetPort] = objects[i].Name
			if doubled && other != objects[i].Name {
				byTarget[p.TargetPort] = restrictedPort{target: p.TargetPort, hostname: objects[i].Name}
				continue
			}
			if restricted, peers := access.peers(spec.Namespace, spec.Service, p.Port); restricted {
				byTarget[p.TargetPort] = restrictedPort{target: p.TargetPort, hostname: objects[i].Name, peers: peers}
			}
		}
	}
	ports := make([]restrictedPort, 0, len(byTarget))
	for _, p := range byTarget {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b restrictedPort) int { return int(a.target - b.target) })
	return ports
}

// boundEndpoints returns our objects. They must not be modified.
func (r *Reconciler) boundEndpoints(ctx context.Context) ([]v1alpha1.BoundEndpoint, error) {
	var list v1alpha1.BoundEndpointList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Layout.Installation.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing BoundEndpoints: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.BoundEndpoint) bool {
		return !r.Layout.Installation.Owns(&b)
	}), nil
}

// live returns our policies, by name.
func (r *Reconciler) live(ctx context.Context) (map[string]*networkingv1.NetworkPolicy, error) {
	own := r.Layout.Installation
	var list networkingv1.NetworkPolicyList
	if err := r.Client.List(ctx, &list, client.InNamespace(own.Namespace),
		client.MatchingLabels(own.Selector())); err != nil {
		return nil, fmt.Errorf("listing NetworkPolicies: %w", err)
	}
	live := make(map[string]*networkingv1.NetworkPolicy, len(list.Items))
	for i := range list.Items {
		live[list.Items[i].Name] = &list.Items[i]
	}
	return live, nil
}

// failures are what prevented policies: of the base policy, of target ports, and of policies that
// are not wanted.
type failures struct {
	base   error
	ports  map[int32]error
	others error
}

func (f failures) all() error {
	errs := []error{f.base}
	for _, err := range f.ports {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, f.others)...)
}

// write writes the desired policies. Without a base policy, those of ports would close all others,
// and metrics and status, so nothing is written without it; and the first base policy closes no port
// whose own policy is not there yet.
func (r *Reconciler) write(
	ctx context.Context, live map[string]*networkingv1.NetworkPolicy, restricted []restrictedPort,
	owners []metav1.OwnerReference,
) failures {
	found := failures{ports: map[int32]error{}}
	base := r.Layout.base(restricted, owners)
	wanted := map[string]bool{base.Name: true}
	missing := false
	for _, p := range restricted {
		wanted[r.Layout.portName(p.target)] = len(p.peers) > 0
		missing = missing || len(p.peers) > 0 && live[r.Layout.portName(p.target)] == nil
	}
	if live[base.Name] == nil && missing {
		closedOnly := slices.DeleteFunc(slices.Clone(restricted), func(p restrictedPort) bool {
			return len(p.peers) > 0
		})
		first, err := r.ensure(ctx, nil, r.Layout.base(closedOnly, owners))
		if err != nil {
			found.base = err
			return found
		}
		live[base.Name] = first
	}
	for _, p := range restricted {
		if policy := r.Layout.portPolicy(p, owners); policy != nil {
			if _, err := r.ensure(ctx, live[policy.Name], policy); err != nil {
				found.ports[p.target] = err
			}
		}
	}
	if _, found.base = r.ensure(ctx, live[base.Name], base); found.base != nil {
		return found
	}
	found.others = r.removeExcept(ctx, live, wanted)
	return found
}

// ensure makes the policy what is desired, and returns it. live is what the cache has of it, or nil.
func (r *Reconciler) ensure(
	ctx context.Context, live, desired *networkingv1.NetworkPolicy,
) (*networkingv1.NetworkPolicy, error) {
	key := client.ObjectKeyFromObject(desired)
	if live == nil {
		err := r.Client.Create(ctx, desired)
		if err == nil {
			log.FromContext(ctx).Info("Created NetworkPolicy", "networkPolicy", key)
			return desired, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating NetworkPolicy %s: %w", key, err)
		}
		live = &networkingv1.NetworkPolicy{} // the cache has not seen it yet, or it is not ours
		if err := r.Live.Get(ctx, key, live); err != nil {
			return nil, fmt.Errorf("reading NetworkPolicy %s: %w", key, err)
		}
	}
	if !r.Layout.Installation.Owns(live) {
		return nil, &foreignError{key}
	}
	next, different := repaired(live, desired)
	if !different {
		return live, nil
	}
	if err := r.Client.Update(ctx, next); err != nil {
		return nil, fmt.Errorf("updating NetworkPolicy %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Updated NetworkPolicy", "networkPolicy", key)
	return next, nil
}

// removeExcept deletes our policies that are not wanted. Copies with our label stay.
func (r *Reconciler) removeExcept(
	ctx context.Context, live map[string]*networkingv1.NetworkPolicy, wanted map[string]bool,
) error {
	var errs []error
	for name, p := range live {
		if wanted[name] || !r.Layout.Installation.Owns(p) || p.DeletionTimestamp != nil {
			continue
		}
		err := r.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting NetworkPolicy %s: %w", client.ObjectKeyFromObject(p), err))
			continue
		}
		log.FromContext(ctx).Info("Deleted NetworkPolicy", "networkPolicy", client.ObjectKeyFromObject(p))
	}
	return errors.Join(errs...)
}

// foreignError means that a policy of another owner has the name of one of ours.
type foreignError struct{ key client.ObjectKey }

// Error implements error.
func (e *foreignError) Error() string {
	return fmt.Sprintf("NetworkPolicy %s is not changed: it belongs to another owner; delete or rename it", e.key)
}

// RequestPass requests a pass. It does not block, and may be called before the controller starts.
func (r *Reconciler) RequestPass() { r.requests.NotifyObject(r.request().NamespacedName) }

// SetupWithManager adds the controller. All events request the same pass. Without watchAccess,
// changes of EndpointAccess objects are to be told by RequestPass.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchAccess bool) error {
	r.RequestPass() // needed where there are no objects, too
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{r.request()}
	})
	specOrMarks := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	build := ctrl.NewControllerManagedBy(mgr).
		Named("networkpolicy").
		WatchesRawSource(r.requests).
		Watches(&networkingv1.NetworkPolicy{}, pass)
	if !r.Disabled {
		build = build.Watches(&v1alpha1.BoundEndpoint{}, pass, specOrMarks)
	}
	if !r.Disabled && watchAccess {
		build = build.Watches(&v1alpha1.EndpointAccess{}, pass, specOrMarks)
	}
	return build.Complete(r)
}

// request is the request of every pass.
func (r *Reconciler) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Layout.Installation.Namespace,
		Name: r.Layout.baseName()}}
}
