// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// uncachedRecheck is how often the slices in listed namespaces are read: no event reports what
// others change.
const uncachedRecheck = time.Minute

// Addresses provides the forwarders' addresses for EndpointSlices; *forwarderaddresses.Tracker
// implements it.
type Addresses interface {
	// Acquire returns the addresses for the slices of a hostname; release is called after the
	// slices are written. While ok is false, nothing is known; a notification follows.
	Acquire(hostname string) (addresses forwarderaddresses.Addresses, release func(), ok bool)
	// Forget ends the notifications of a hostname that has no slices.
	Forget(hostname string)
}

// projection returns how a namespace's pods reach the forwarders: as its label has it, or as the
// installation does. The labels of listed namespaces cannot be read. A label with another value has
// no effect, and ignored is that value.
func (r *Reconciler) projection(ctx context.Context, namespace string) (p v1alpha1.Projection, ignored string) {
	if r.WithoutSlices {
		return v1alpha1.ProjectionExternalName, ""
	}
	if r.Namespaces.Listed() {
		return r.Projection, ""
	}
	ns, err := r.getNamespace(ctx, namespace)
	if err != nil {
		return r.Projection, "" // there is no namespace to project into
	}
	label := ns.Labels[v1alpha1.LabelProjection]
	if p = v1alpha1.Projection(label); p.Valid() {
		return p, ""
	}
	return r.Projection, label
}

// recordedProjection returns the projection of the Services that the status describes.
func recordedProjection(b *v1alpha1.BoundEndpoint) v1alpha1.Projection {
	return cmp.Or(b.Status.Projection, v1alpha1.ProjectionExternalName)
}

// ensureExternalName makes the upstream Service and the target Service that is a CNAME of it.
func (r *Reconciler) ensureExternalName(
	ctx context.Context, b *v1alpha1.BoundEndpoint, owners installation.Owners,
) (serviceState, *problem) {
	if !r.switches.active(b.Name) {
		r.Addresses.Forget(b.Name)
	}
	upstream, target := r.Layout.upstreamService(b, owners.Local), r.Layout.targetService(b, nil)
	madeUpstream, problem := r.ensure(ctx, b, upstream)
	var madeTarget *corev1.Service
	if problem == nil {
		madeTarget, problem = r.ensureTarget(ctx, b, target)
	}
	state := serviceState{projection: v1alpha1.ProjectionExternalName, addressed: madeUpstream,
		services: append(serviceRefs(b, upstream, madeUpstream), serviceRefs(b, target, madeTarget)...)}
	if problem != nil && (madeUpstream == nil || problem.stale || problem.err != nil) {
		// Services of an earlier projection id stay until their successors exist
		return state, problem
	}
	if problem == nil {
		problem = r.removeSlices(ctx, b, target)
	}
	stay, wait := r.lingering(ctx, b, r.Layout.transitionService(b, owners.Local, nil))
	state.requeueAfter = soonest(wait, recheckOwners(madeUpstream), recheckOwners(madeTarget))
	return r.removeOthers(ctx, b, state, problem, append(stay, upstream, target)...)
}

// ensureEndpointSlices makes the target Service and its EndpointSlices.
func (r *Reconciler) ensureEndpointSlices(ctx context.Context, b *v1alpha1.BoundEndpoint) (serviceState, *problem) {
	target := r.Layout.slicedService(b, nil)
	made, problem := r.ensureTarget(ctx, b, target)
	state := serviceState{projection: v1alpha1.ProjectionEndpointSlice, addressed: made,
		services: serviceRefs(b, target, made)}
	if problem == nil {
		problem = r.explainForbidden(b.Spec.Namespace, r.ensureSlices(ctx, b, made))
	}
	if problem != nil {
		return state, problem
	}
	stay, wait := r.lingering(ctx, b, r.Layout.upstreamService(b, nil),
		r.Layout.transitionService(b, nil, nil))
	state.requeueAfter = soonest(wait, recheckOwners(made))
	if r.Targets != nil {
		state.requeueAfter = soonest(state.requeueAfter, uncachedRecheck)
	}
	for _, s := range stay {
		state.services = append(state.services, serviceRef(s))
	}
	return r.removeOthers(ctx, b, state, nil, append(stay, target)...)
}

// recheckOwners returns when to look for an anchor that the Service lacks; 0: it lacks none.
func recheckOwners(made *corev1.Service) time.Duration {
	if made == nil {
		return 0
	}
	return installation.RecheckAfter(made.OwnerReferences)
}

// soonest returns the shortest of the delays that are not 0.
func soonest(delays ...time.Duration) time.Duration {
	var first time.Duration
	for _, d := range delays {
		if d > 0 && (first == 0 || d < first) {
			first = d
		}
	}
	return first
}

// removeOthers removes the hostname's Services but those that are kept.
func (r *Reconciler) removeOthers(
	ctx context.Context, b *v1alpha1.BoundEndpoint, state serviceState, found *problem, keep ...*corev1.Service,
) (serviceState, *problem) {
	keys := make([]client.ObjectKey, len(keep))
	for i, s := range keep {
		keys[i] = client.ObjectKeyFromObject(s)
	}
	left, err := r.removeAll(ctx, b.Name, b.Status.Services, keys...)
	if err != nil && found == nil {
		found = problemFromError(err)
	}
	state.services = append(state.services, left...)
	return state, found
}

// projectedMessage describes where the target Service leads.
func projectedMessage(b *v1alpha1.BoundEndpoint, now serviceState) string {
	message := fmt.Sprintf("Service %s/%s leads to the forwarders", b.Spec.Namespace, b.Spec.Service)
	if now.ignoredLabel != "" {
		message += fmt.Sprintf("; the label %s of the namespace has no effect: %q is neither %s nor %s",
			v1alpha1.LabelProjection, now.ignoredLabel, v1alpha1.ProjectionExternalName,
			v1alpha1.ProjectionEndpointSlice)
	}
	return message
}
