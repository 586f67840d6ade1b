// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// applyDelay collects changes before the agent gets them: an object that is deleted and made again
// in this time keeps its endpoint.
const applyDelay = 100 * time.Millisecond

// object is what endpoints of the agent are for: an AgentEndpoint, which has one, or a
// ServiceExport, which has one for each port.
type object struct {
	kind string // account.KindAgentEndpoint or account.KindServiceExport
	types.NamespacedName
}

func agentEndpoint(name types.NamespacedName) object { return object{account.KindAgentEndpoint, name} }
func serviceExport(name types.NamespacedName) object { return object{account.KindServiceExport, name} }

// keyOf returns the key of an AgentEndpoint's endpoint for the agent: "<namespace>/<name>".
func keyOf(o types.NamespacedName) string { return o.String() }

// portKey returns the key of the endpoint of a ServiceExport's port.
func portKey(o types.NamespacedName, port int32) string {
	return account.KindServiceExport + "/" + o.String() + ":" + strconv.Itoa(int(port))
}

// objectOf returns the object of an endpoint's key.
func objectOf(key string) object {
	of := agentEndpoint
	if export, ok := strings.CutPrefix(key, account.KindServiceExport+"/"); ok {
		of = serviceExport
		key, _, _ = strings.Cut(export, ":")
	}
	namespace, name, _ := strings.Cut(key, "/")
	return of(types.NamespacedName{Namespace: namespace, Name: name})
}

// endpointSet is what the agent is to serve: the endpoints of each object that is accepted. It is
// safe for concurrent use.
type endpointSet struct {
	changed notify.Signal // holds a value when endpoints has changed

	mu        sync.Mutex
	endpoints map[object][]agent.Endpoint
	seen      map[object]bool // objects that were reconciled
}

func newEndpointSet() *endpointSet {
	return &endpointSet{changed: notify.NewSignal(), endpoints: map[object][]agent.Endpoint{},
		seen: map[object]bool{}}
}

// put sets the endpoints of an object, which have different keys. It returns the keys of those that
// are new or have changed, and of those that are gone.
func (s *endpointSet) put(o object, endpoints ...agent.Endpoint) (changed, removed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[o] = true
	before := s.endpoints[o]
	for i := range endpoints {
		same := func(b agent.Endpoint) bool { return sameEndpoint(b, endpoints[i]) }
		if !slices.ContainsFunc(before, same) {
			changed = append(changed, endpoints[i].Key)
		}
	}
	for i := range before {
		if !slices.ContainsFunc(endpoints, func(e agent.Endpoint) bool { return e.Key == before[i].Key }) {
			removed = append(removed, before[i].Key)
		}
	}
	if len(changed)+len(removed) == 0 {
		return nil, nil
	}
	if s.endpoints[o] = endpoints; len(endpoints) == 0 {
		delete(s.endpoints, o)
	}
	s.changed.Send()
	return changed, removed
}

// sameEndpoint reports whether both are bound and served alike.
func sameEndpoint(a, b agent.Endpoint) bool {
	a.Dial, b.Dial = nil, nil // all endpoints have one
	a.SealedServer, b.SealedServer = nil, nil
	rootsA, rootsB := a.Upstream.Roots, b.Upstream.Roots
	a.Upstream.Roots, b.Upstream.Roots = nil, nil // they hold functions
	return reflect.DeepEqual(a, b) && rootsA.Equal(rootsB)
}

// keep records that an object was reconciled, and leaves its endpoints as they are.
func (s *endpointSet) keep(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[o] = true
}

// withhold makes the agent refuse the streams of an object's endpoints at once, and unbind them.
func (s *endpointSet) withhold(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[o] = true
	for i := range s.endpoints[o] {
		s.endpoints[o][i].Withheld = true
	}
	s.changed.Send()
}

// remove removes an object that no longer exists. It returns the keys of its endpoints.
func (s *endpointSet) remove(o object) []string {
	_, removed := s.put(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, o)
	return removed
}

// has reports whether the object has endpoints that are not withheld.
func (s *endpointSet) has(o object) bool { return len(s.keys(o)) > 0 }

// seals reports whether the object has an endpoint, and a sealed one.
func (s *endpointSet) seals(o object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.endpoints[o]) > 0 && s.endpoints[o][0].Seal != nil
}

// keys returns the keys of the object's endpoints that are not withheld.
func (s *endpointSet) keys(o object) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for i := range s.endpoints[o] {
		if !s.endpoints[o][i].Withheld {
			keys = append(keys, s.endpoints[o][i].Key)
		}
	}
	return keys
}

// wasSeen reports whether the object was reconciled.
func (s *endpointSet) wasSeen(o object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[o]
}

// all returns the endpoints, sorted by key.
func (s *endpointSet) all() []agent.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]agent.Endpoint, 0, len(s.endpoints))
	for _, endpoints := range s.endpoints {
		all = append(all, endpoints...)
	}
	slices.SortFunc(all, func(a, b agent.Endpoint) int { return strings.Compare(a.Key, b.Key) })
	return all
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
		if !timer.Sleep(ctx, applyDelay) {
			return
		}
		select { // what has changed meanwhile is in all
		case <-s.changed:
		default:
		}
	}
}

// exportedPorts are the agent's endpoints of ServiceExports.
type exportedPorts struct{ *exporter }

// Serve implements serviceexport.Ports.
func (p exportedPorts) Serve(export types.NamespacedName, ports map[int32]agent.Endpoint) {
	endpoints := make([]agent.Endpoint, 0, len(ports))
	for port, e := range ports {
		e.Key = portKey(export, port)
		endpoints = append(endpoints, e)
	}
	changed, removed := p.set.put(serviceExport(export), endpoints...)
	p.states.ask(changed...)
	p.states.forget(removed...)
	if len(changed) > 0 {
		p.traffic.add(serviceExport(export))
	}
}

// Seal implements serviceexport.Ports.
func (p exportedPorts) Seal(u account.EndpointURL) (*sealed.Identity, *status.Problem) {
	return p.seal.identityOf(account.BindingClusterset, u)
}

// Withhold implements serviceexport.Ports.
func (p exportedPorts) Withhold(export types.NamespacedName) {
	p.states.forget(p.set.keys(serviceExport(export))...)
	p.set.withhold(serviceExport(export))
}

// Keep implements serviceexport.Ports.
func (p exportedPorts) Keep(export types.NamespacedName) { p.set.keep(serviceExport(export)) }

// Remove implements serviceexport.Ports.
func (p exportedPorts) Remove(export types.NamespacedName) {
	p.states.forget(p.set.remove(serviceExport(export))...)
	p.traffic.forget(serviceExport(export))
}

// Serves implements serviceexport.Ports.
func (p exportedPorts) Serves(export types.NamespacedName) bool {
	return p.set.has(serviceExport(export))
}

// State implements serviceexport.Ports.
func (p exportedPorts) State(export types.NamespacedName, port int32) serviceexport.PortState {
	s := p.states.get(portKey(export, port))
	return serviceexport.PortState{Bound: s.Bound, Reason: s.Reason, Message: s.Message, Asked: s.asked}
}

// Unreachable implements serviceexport.Ports.
func (p exportedPorts) Unreachable() string {
	_, why := p.states.session()
	return why
}
