// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

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
