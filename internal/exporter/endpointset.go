// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

// applyDelay collects changes before the agent gets them: an object that is deleted and made again
// in this time keeps its endpoint.
const applyDelay = 100 * time.Millisecond

// endpointSet is what the agent is to serve: an endpoint for each object that is accepted. It is
// safe for concurrent use.
type endpointSet struct {
	changed chan struct{} // holds a value when endpoints has changed

	mu        sync.Mutex
	endpoints map[types.NamespacedName]agent.Endpoint
	seen      map[types.NamespacedName]bool // objects that were reconciled
}

func newEndpointSet() *endpointSet {
	return &endpointSet{changed: make(chan struct{}, 1), endpoints: map[types.NamespacedName]agent.Endpoint{},
		seen: map[types.NamespacedName]bool{}}
}

// put sets the endpoint of an object, nil for none. It returns false if it was the same before.
func (s *endpointSet) put(object types.NamespacedName, e *agent.Endpoint) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[object] = true
	before, had := s.endpoints[object]
	switch {
	case e == nil && !had, e != nil && had && sameEndpoint(before, *e):
		return false
	case e == nil:
		delete(s.endpoints, object)
	default:
		s.endpoints[object] = *e
	}
	s.notify()
	return true
}

// sameEndpoint reports whether both are bound and served alike.
func sameEndpoint(a, b agent.Endpoint) bool {
	a.Dial, b.Dial = nil, nil // all endpoints have one
	return reflect.DeepEqual(a, b)
}

// keep records that an object was reconciled, and leaves its endpoint as it is.
func (s *endpointSet) keep(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[object] = true
}

// remove removes an object that no longer exists.
func (s *endpointSet) remove(object types.NamespacedName) {
	s.put(object, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, object)
}

// has reports whether the object has an endpoint.
func (s *endpointSet) has(object types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.endpoints[object]
	return ok
}

// wasSeen reports whether the object was reconciled.
func (s *endpointSet) wasSeen(object types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[object]
}

// all returns the endpoints, sorted by key.
func (s *endpointSet) all() []agent.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.endpoints), func(a, b agent.Endpoint) int {
		return strings.Compare(a.Key, b.Key)
	})
}

// notify requests an apply.
func (s *endpointSet) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// apply calls set with all endpoints, at once and after each change, until ctx ends.
func (s *endpointSet) apply(ctx context.Context, set func([]agent.Endpoint)) {
	for {
		set(s.all())
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		delay := time.NewTimer(applyDelay)
		select {
		case <-ctx.Done():
			delay.Stop()
			return
		case <-delay.C:
		}
		select { // what has changed meanwhile is in all
		case <-s.changed:
		default:
		}
	}
}
