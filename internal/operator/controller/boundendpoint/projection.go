// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// uncachedRecheck is how often the slices in listed namespaces are read: no event reports what
// others change.
const uncachedRecheck = time.Minute

// recordedProjection returns the projection of the Services that the status describes.
func recordedProjection(b *v1alpha1.BoundEndpoint) v1alpha1.Projection {
	return cmp.Or(b.Status.Projection, v1alpha1.ProjectionExternalName)
}

// serviceState is the result of ensure.
type serviceState struct {
	projection v1alpha1.Projection // empty: as it was
	// addressed is the Service with the ClusterIP that pods call; nil if there is none, or its
	// state is not known.
	addressed    *corev1.Service
	services     []v1alpha1.ServiceRef
	ignoredLabel string        // the value of LabelProjection if it is none
	admission    string        // what admission changes of Services that can be used nevertheless
	requeueAfter time.Duration // when to look again although nothing prevents a Service; 0: at the next event
}

// projector makes the Services and slices of hostnames. It is safe for concurrent use.
type projector struct {
	layout    Layout
	anchors   *installation.Anchors
	targets   *targetNamespaces
	services  *serviceWriter
	slices    *sliceWriter
	addresses forwarderaddresses.Provider
	switches  *switches
}

// ensure makes the Services of one projection.
func (p *projector) ensure(
	ctx context.Context, b *v1alpha1.BoundEndpoint, owners installation.Owners, as v1alpha1.Projection,
) (serviceState, *status.Problem) {
	if as == v1alpha1.ProjectionEndpointSlice {
		return p.ensureEndpointSlices(ctx, b)
	}
	return p.ensureExternalName(ctx, b, owners)
}

// stop ends the notifications and the change of a hostname that has no Services.
func (p *projector) stop(hostname string) {
	p.addresses.Forget(hostname)
	p.switches.end(hostname)
}

// forget drops the state of a hostname whose object is gone.
func (p *projector) forget(hostname string) {
	p.stop(hostname)
	p.switches.since.Delete(hostname)
	p.services.owned.Forget(hostname)
}

// ensureExternalName makes the upstream Service and the target Service that is a CNAME of it.
func (p *projector) ensureExternalName(
	ctx context.Context, b *v1alpha1.BoundEndpoint, owners installation.Owners,
) (serviceState, *status.Problem) {
	if !p.switches.active(b.Name) {
		p.addresses.Forget(b.Name)
	}
	upstream, target := p.layout.upstreamService(b, owners.Local), p.layout.targetService(b, nil)
	madeUpstream, problem := p.services.ensure(ctx, b, upstream)
	var madeTarget *corev1.Service
	if problem == nil {
		madeTarget, problem = p.ensureTarget(ctx, b, target)
	}
	state := serviceState{projection: v1alpha1.ProjectionExternalName, addressed: madeUpstream,
		services: append(serviceRefs(b, upstream, madeUpstream), serviceRefs(b, target, madeTarget)...)}
	if problem != nil && (madeUpstream == nil || problem.Err != nil) {
		// Services of an earlier projection id stay until their successors exist
		return state, problem
	}
	if problem == nil && !p.switches.active(b.Name) {
		problem = p.slices.remove(ctx, b, target)
	}
	stay, wait := p.switches.lingering(ctx, b, p.layout.transitionService(b, owners.Local))
	changed, retry := p.services.owned.AdmissionChanged(upstream, target)
	state.admission, state.requeueAfter = changed, soonest(wait, retry, recheckOwners(madeUpstream),
		recheckOwners(madeTarget))
	return p.removeOthers(ctx, b, state, problem, append(stay, upstream, target)...)
}

// ensureEndpointSlices makes the target Service and its EndpointSlices.
func (p *projector) ensureEndpointSlices(
	ctx context.Context, b *v1alpha1.BoundEndpoint,
) (serviceState, *status.Problem) {
	target := p.layout.slicedService(b, nil)
	made, problem := p.ensureTarget(ctx, b, target)
	state := serviceState{projection: v1alpha1.ProjectionEndpointSlice, addressed: made,
		services: serviceRefs(b, target, made)}
	if problem == nil {
		problem = p.targets.explainForbidden(b.Spec.Namespace, p.slices.ensure(ctx, b, made))
	}
	if problem != nil {
		return state, problem
	}
	stay, wait := p.switches.lingering(ctx, b, p.layout.upstreamService(b, nil),
		p.layout.transitionService(b, nil))
	changed, retry := p.services.owned.AdmissionChanged(target)
	state.admission, state.requeueAfter = changed, soonest(wait, retry, recheckOwners(made))
	if p.slices.uncached {
		state.requeueAfter = soonest(state.requeueAfter, uncachedRecheck)
	}
	for _, s := range stay {
		state.services = append(state.services, serviceRef(s))
	}
	return p.removeOthers(ctx, b, state, nil, append(stay, target)...)
}

// removeSlices deletes the slices of a hostname without an object: those that a backup restored have
// no owner.
func (p *projector) removeSlices(ctx context.Context, hostname string) *status.Problem {
	b := &v1alpha1.BoundEndpoint{}
	b.Name = hostname
	b.Spec.Service, b.Spec.Namespace, _ = strings.Cut(hostname, ".")
	return p.slices.remove(ctx, b, &corev1.Service{})
}

// ensureTarget makes the target Service, or returns what prevents it.
func (p *projector) ensureTarget(
	ctx context.Context, b *v1alpha1.BoundEndpoint, desired *corev1.Service,
) (*corev1.Service, *status.Problem) {
	if found := p.targets.missing(ctx, b.Spec.Namespace); found != nil {
		return nil, found
	}
	owners, err := p.anchors.TargetOwners(ctx, b.Spec.Namespace)
	if err != nil {
		return nil, p.targets.explainForbidden(b.Spec.Namespace, problemFromError(err))
	}
	desired.OwnerReferences = owners
	made, found := p.services.ensure(ctx, b, desired)
	return made, p.targets.explainForbidden(b.Spec.Namespace, found)
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
func (p *projector) removeOthers(
	ctx context.Context, b *v1alpha1.BoundEndpoint, state serviceState, found *status.Problem, keep ...*corev1.Service,
) (serviceState, *status.Problem) {
	left, err := p.services.removeAll(ctx, b.Name, b.Status.Services, keep...)
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
	if now.admission != "" {
		message += "; but " + now.admission
	}
	return message
}
