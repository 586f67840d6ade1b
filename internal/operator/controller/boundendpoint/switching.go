// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// A hostname changes its projection without a failed connection, although the ClusterIP that its
// name leads to changes, DNS answers are cached, and kube-proxy follows after up to a second:
//
//  1. A Service beside the forwarders gets the new address (the transition Service, or the upstream
//     Service), and kube-proxy time to follow.
//  2. Something else is written that concerns the new projection (slices first), so that kube-proxy
//     has just synced and collects what follows for a second.
//  3. The target Service changes in place, and the address changes hands: to slices, the target
//     Service takes the transition Service's; to externalName, the transition Service takes the
//     target Service's.
//  4. The Service that the name led to before stays for lingerTime.
//
// A manager that restarts in between begins again.
const (
	// proxyDelay is how long kube-proxy may take to follow a new Service.
	proxyDelay = 3 * time.Second
	// touchDelay is the delay between the second and the third step.
	touchDelay = 200 * time.Millisecond
	// switchPoll is how often the endpoints of a new Service are read, and turnPoll how often a
	// hostname asks for its turn.
	switchPoll = 500 * time.Millisecond
	turnPoll   = 2 * time.Second
	// lingerTime is how long a Service stays whose address pods may still know: longer than DNS
	// answers are usually cached.
	lingerTime = 5 * time.Minute
	// maxSwitching is how many hostnames change their projection at a time: each needs another
	// Service meanwhile.
	maxSwitching = 20
)

// switchState is how far a hostname is.
type switchState struct {
	readyAt   time.Time // when the new Service had endpoints; zero: not yet
	touchedAt time.Time // when the second step was done; zero: not yet
	// addresses are those that change hands, from the moment that nothing has them.
	addresses []string
	swapped   bool // the target Service has changed; the cache may not have it yet
	done      bool // the third step is done
}

// switches are the hostnames that change their projection. It is safe for concurrent use; a state
// is only used by its hostname's reconciliation.
type switches struct {
	mu     sync.Mutex
	states map[string]*switchState
}

// begin returns the state of a hostname, nil if too many others are under way.
func (s *switches) begin(hostname string) *switchState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[hostname]
	if state == nil && len(s.states) < maxSwitching {
		state = &switchState{}
		if s.states == nil {
			s.states = map[string]*switchState{}
		}
		s.states[hostname] = state
	}
	return state
}

// active reports whether the hostname changes its projection.
func (s *switches) active(hostname string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[hostname] != nil
}

// swapping reports whether the hostname is within the third step.
func (s *switches) swapping(hostname string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[hostname]
	return state != nil && state.addresses != nil && !state.done
}

func (s *switches) end(hostname string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, hostname)
}

// ensureProjection makes the Services as the projection wants them. A hostname that has another
// one keeps it until the change is prepared.
func (r *Reconciler) ensureProjection(
	ctx context.Context, b *v1alpha1.BoundEndpoint, owners installation.Owners,
) (serviceState, *problem) {
	wanted, ignored := r.projection(ctx, b.Spec.Namespace)
	live := &corev1.Service{}
	err := r.getService(ctx, client.ObjectKey{Namespace: b.Spec.Namespace, Name: b.Spec.Service}, live)
	ours := err == nil && (r.hasProjection(live, b) || r.switches.swapping(b.Name) && r.isOurs(live, b))
	if recordedProjection(b) == wanted || !ours {
		r.switches.end(b.Name)
		now, found := r.ensureAs(ctx, b, owners, wanted)
		now.ignoredLabel = ignored
		return now, found
	}
	state := r.switches.begin(b.Name)
	wait, found := turnPoll, (*problem)(nil)
	if state != nil {
		wait, found = r.prepareSwitch(ctx, b, live, owners, state, wanted)
	}
	as := wanted
	if found != nil || wait > 0 {
		as = recordedProjection(b)
	} else if found = r.swap(ctx, b, live, owners, state, wanted); found != nil {
		return serviceState{services: b.Status.Services}, found
	}
	now, other := r.ensureAs(ctx, b, owners, as)
	if found == nil {
		found = other
	}
	now.ignoredLabel = ignored
	if wait > 0 {
		now.requeueAfter = wait
	}
	return now, found
}

// hasProjection reports whether the Service is the hostname's, and as its status describes it.
func (r *Reconciler) hasProjection(s *corev1.Service, b *v1alpha1.BoundEndpoint) bool {
	want := corev1.ServiceTypeExternalName
	if recordedProjection(b) == v1alpha1.ProjectionEndpointSlice {
		want = corev1.ServiceTypeClusterIP
	}
	return r.isOurs(s, b) && s.DeletionTimestamp == nil && s.Spec.Type == want && !headless(s)
}

func (r *Reconciler) ensureAs(
	ctx context.Context, b *v1alpha1.BoundEndpoint, owners installation.Owners, p v1alpha1.Projection,
) (serviceState, *problem) {
	if p == v1alpha1.ProjectionEndpointSlice {
		return r.ensureEndpointSlices(ctx, b)
	}
	return r.ensureExternalName(ctx, b, owners)
}

// prepareSwitch does the first two steps. It returns how long to wait for the third, 0 if that may
// follow now.
func (r *Reconciler) prepareSwitch(
	ctx context.Context, b *v1alpha1.BoundEndpoint, live *corev1.Service, owners installation.Owners,
	state *switchState, wanted v1alpha1.Projection,
) (wait time.Duration, found *problem) {
	if state.addresses != nil {
		return 0, nil // the third step is under way
	}
	transition, next := r.Layout.transitionService(b, owners.Local, nil), r.Layout.upstreamService(b, owners.Local)
	toSlices := wanted == v1alpha1.ProjectionEndpointSlice
	if toSlices {
		next = transition
	}
	if _, found = r.ensure(ctx, b, next); found != nil {
		return switchPoll, found
	}
	now := r.Clock.Now()
	if state.readyAt.IsZero() {
		ready, err := r.hasForwarders(ctx, next)
		if err != nil {
			return switchPoll, problemFromError(err)
		}
		if !ready {
			return switchPoll, nil
		}
		state.readyAt = now
	}
	if wait = proxyDelay - now.Sub(state.readyAt); wait > 0 {
		return wait, nil
	}
	if toSlices {
		found = r.ensureSlices(ctx, b, live)
	} else {
		_, found = r.ensure(ctx, b, transition)
	}
	if found != nil && found.pending {
		return switchPoll, nil // the addresses are not known yet
	}
	if found != nil {
		return switchPoll, found
	}
	if state.touchedAt.IsZero() {
		state.touchedAt = now
	}
	return touchDelay - now.Sub(state.touchedAt), nil
}

// hasForwarders reports whether Kubernetes' EndpointSlices of a Service in the operator's namespace
// list a ready forwarder.
func (r *Reconciler) hasForwarders(ctx context.Context, s *corev1.Service) (bool, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: s.Name}); err != nil {
		return false, fmt.Errorf("listing the EndpointSlices of Service %s: %w", client.ObjectKeyFromObject(s), err)
	}
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return true, nil
			}
		}
	}
	return false, nil
}

// swap does the third step.
func (r *Reconciler) swap(
	ctx context.Context, b *v1alpha1.BoundEndpoint, live *corev1.Service, owners installation.Owners,
	state *switchState, wanted v1alpha1.Projection,
) *problem {
	if state.done {
		return nil
	}
	transition := r.Layout.transitionService(b, owners.Local, nil)
	if state.addresses == nil {
		if err := r.takeAddresses(ctx, transition, live, state); err != nil {
			return problemFromError(err)
		}
		r.lingeringSince.Delete(b.Name)
	}
	desired := r.Layout.targetService(b, nil)
	if wanted == v1alpha1.ProjectionEndpointSlice {
		desired = r.Layout.slicedService(b, nil)
		setAddresses(desired, state.addresses)
	}
	desired.OwnerReferences = live.OwnerReferences
	if !state.swapped {
		if _, found := r.repair(ctx, live, desired); found != nil {
			return found
		}
		state.swapped = true
	}
	if wanted == v1alpha1.ProjectionEndpointSlice {
		state.done = true
		return nil
	}
	// not from the cache, which may still have the one that was deleted
	if _, err := r.create(ctx, r.Layout.transitionService(b, owners.Local, state.addresses)); err != nil {
		return problemFromError(err)
	}
	state.done = true
	return nil
}

// takeAddresses sets the addresses that change hands, and deletes the transition Service, which has
// them or is in the way.
func (r *Reconciler) takeAddresses(
	ctx context.Context, transition, live *corev1.Service, state *switchState,
) error {
	holder := &corev1.Service{}
	if err := r.getService(ctx, client.ObjectKeyFromObject(transition), holder); err != nil {
		return fmt.Errorf("reading Service %s: %w", client.ObjectKeyFromObject(transition), err)
	}
	if err := r.remove(ctx, holder); err != nil {
		return err
	}
	state.addresses = holder.Spec.ClusterIPs
	if live.Spec.Type == corev1.ServiceTypeClusterIP {
		state.addresses = live.Spec.ClusterIPs
	}
	return nil
}

// lingering returns which of the Services exist and stay, because pods may still know their
// addresses, and for how long.
func (r *Reconciler) lingering(
	ctx context.Context, b *v1alpha1.BoundEndpoint, candidates ...*corev1.Service,
) (stay []*corev1.Service, wait time.Duration) {
	for _, s := range candidates {
		live := &corev1.Service{}
		if r.getService(ctx, client.ObjectKeyFromObject(s), live) == nil && r.isOurs(live, b) {
			stay = append(stay, live)
		}
	}
	if len(stay) == 0 {
		r.lingeringSince.Delete(b.Name)
		return nil, 0
	}
	since, _ := r.lingeringSince.LoadOrStore(b.Name, r.Clock.Now())
	if r.switches.active(b.Name) {
		return stay, switchPoll
	}
	if wait = lingerTime - r.Clock.Now().Sub(since.(time.Time)); wait <= 0 {
		return nil, 0
	}
	return stay, wait
}
