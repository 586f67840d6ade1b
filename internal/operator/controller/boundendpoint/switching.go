// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
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
)

// switcher makes the Services of hostnames in the projection that their namespace wants, and changes
// it. It is safe for concurrent use.
type switcher struct {
	projector *projector
	clock     clock.PassiveClock
}

// ensure makes the Services as the projection wants them. A hostname that has another one keeps it
// until the change is prepared.
func (s *switcher) ensure(
	ctx context.Context, b *v1alpha1.BoundEndpoint, owners installation.Owners,
) (serviceState, *status.Problem) {
	wanted, ignored := s.projector.targets.projection(ctx, b.Spec.Namespace)
	live := &corev1.Service{}
	err := s.projector.services.service(ctx, client.ObjectKey{Namespace: b.Spec.Namespace, Name: b.Spec.Service}, live)
	own, switching := s.projector.services, s.projector.switches
	ours := err == nil && (own.hasProjection(live, b) || switching.swapping(b.Name) && own.isOurs(live, b))
	if recordedProjection(b) == wanted || !ours {
		s.projector.switches.end(b.Name)
		now, found := s.projector.ensure(ctx, b, owners, wanted)
		now.ignoredLabel = ignored
		return now, found
	}
	state := s.projector.switches.begin(b.Name)
	wait, found := turnPoll, (*status.Problem)(nil)
	change := &projectionChange{s.projector, s.clock, b, live, owners, state, wanted}
	if state != nil {
		wait, found = change.prepare(ctx)
	}
	as := wanted
	if found != nil || wait > 0 {
		as = recordedProjection(b)
	} else if found = change.swap(ctx); found != nil {
		return serviceState{services: b.Status.Services}, found
	}
	now, other := s.projector.ensure(ctx, b, owners, as)
	found = cmp.Or(found, other)
	now.ignoredLabel = ignored
	if wait > 0 {
		now.requeueAfter = wait
	}
	return now, found
}

// projectionChange is one reconciliation's part of a change.
type projectionChange struct {
	p      *projector
	clock  clock.PassiveClock
	b      *v1alpha1.BoundEndpoint
	live   *corev1.Service // the target Service
	owners installation.Owners
	state  *switchState
	wanted v1alpha1.Projection
}

// prepare does the first two steps. It returns how long to wait for the third, 0 if that may follow
// now.
func (c *projectionChange) prepare(ctx context.Context) (wait time.Duration, found *status.Problem) {
	if c.state.addresses != nil {
		return 0, nil // the third step is under way
	}
	transition := c.p.layout.transitionService(c.b, c.owners.Local)
	next := c.p.layout.upstreamService(c.b, c.owners.Local)
	toSlices := c.wanted == v1alpha1.ProjectionEndpointSlice
	if toSlices {
		next = transition
	}
	if _, found = c.p.services.ensure(ctx, c.b, next); found != nil {
		return switchPoll, found
	}
	now := c.clock.Now()
	if c.state.readyAt.IsZero() {
		ready, err := c.p.slices.hasForwarders(ctx, next)
		if err != nil {
			return switchPoll, problemFromError(err)
		}
		if !ready {
			return switchPoll, nil
		}
		c.state.readyAt = now
	}
	if wait = proxyDelay - now.Sub(c.state.readyAt); wait > 0 {
		return wait, nil
	}
	if toSlices {
		found = c.p.slices.ensure(ctx, c.b, c.live)
	} else {
		_, found = c.p.services.ensure(ctx, c.b, transition)
	}
	if found != nil && found.Quiet && found.Err == nil {
		return switchPoll, nil // the addresses are not known yet
	}
	if found != nil {
		return switchPoll, found
	}
	if c.state.touchedAt.IsZero() {
		c.state.touchedAt = now
	}
	return touchDelay - now.Sub(c.state.touchedAt), nil
}

// swap does the third step.
func (c *projectionChange) swap(ctx context.Context) *status.Problem {
	if c.state.done {
		return nil
	}
	transition := c.p.layout.transitionService(c.b, c.owners.Local)
	if c.state.addresses == nil {
		if err := c.takeAddresses(ctx, transition); err != nil {
			return problemFromError(err)
		}
		c.p.switches.since.Delete(c.b.Name)
	}
	desired := c.p.layout.targetService(c.b, nil)
	if c.wanted == v1alpha1.ProjectionEndpointSlice {
		desired = c.p.layout.slicedService(c.b, nil)
		setAddresses(desired, c.state.addresses)
	}
	desired.OwnerReferences = c.live.OwnerReferences
	if !c.state.swapped {
		if _, found := c.p.services.repair(ctx, c.live, desired); found != nil {
			return found
		}
		c.state.swapped = true
	}
	if c.wanted == v1alpha1.ProjectionEndpointSlice {
		c.state.done = true
		return nil
	}
	// not from the cache, which may still have the one that was deleted
	setAddresses(transition, c.state.addresses)
	made, _, err := c.p.services.create(ctx, transition)
	if err != nil {
		return problemFromError(err)
	}
	var found *status.Problem
	if c.p.services.isOurs(made, c.b) { // else another owner has taken the name
		_, found = c.p.services.repair(ctx, made, transition)
	}
	c.state.done = found == nil
	return found
}

// takeAddresses sets the addresses that change hands, and deletes the transition Service, which has
// them or is in the way.
func (c *projectionChange) takeAddresses(ctx context.Context, transition *corev1.Service) error {
	holder := &corev1.Service{}
	if err := c.p.services.service(ctx, client.ObjectKeyFromObject(transition), holder); err != nil {
		return fmt.Errorf("reading Service %s: %w", client.ObjectKeyFromObject(transition), err)
	}
	if err := c.p.services.remove(ctx, holder); err != nil {
		return err
	}
	c.state.addresses = holder.Spec.ClusterIPs
	if c.live.Spec.Type == corev1.ServiceTypeClusterIP {
		c.state.addresses = c.live.Spec.ClusterIPs
	}
	return nil
}

// maxSwitching is how many hostnames change their projection at a time: each needs another Service
// meanwhile.
const maxSwitching = 20

// switchState is how far a hostname is.
type switchState struct {
	readyAt   time.Time // when the new Service had endpoints; zero: not yet
	touchedAt time.Time // when the second step was done; zero: not yet
	// addresses are those that change hands, from the moment that nothing has them.
	addresses []string
	swapped   bool // the target Service has changed; the cache may not have it yet
	done      bool // the third step is done
}

// switches are the hostnames that change their projection, and those with Services that linger after
// a change while pods may know their addresses. It is safe for concurrent use; a state is only used
// by its hostname's reconciliation.
type switches struct {
	services *serviceWriter
	clock    clock.PassiveClock
	since    sync.Map // since when a hostname has Services that linger

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

// lingerTime is how long a Service stays whose address pods may still know: longer than DNS answers
// are usually cached.
const lingerTime = 5 * time.Minute

// lingering returns which of the Services exist and stay, because pods may still know their
// addresses, and for how long.
func (s *switches) lingering(
	ctx context.Context, b *v1alpha1.BoundEndpoint, candidates ...*corev1.Service,
) (stay []*corev1.Service, wait time.Duration) {
	for _, c := range candidates {
		live := &corev1.Service{}
		if s.services.service(ctx, client.ObjectKeyFromObject(c), live) == nil && s.services.isOurs(live, b) {
			stay = append(stay, live)
		}
	}
	if len(stay) == 0 {
		s.since.Delete(b.Name)
		return nil, 0
	}
	since, _ := s.since.LoadOrStore(b.Name, s.clock.Now())
	if s.active(b.Name) {
		return stay, switchPoll
	}
	if wait = lingerTime - s.clock.Now().Sub(since.(time.Time)); wait <= 0 {
		return nil, 0
	}
	return stay, wait
}
