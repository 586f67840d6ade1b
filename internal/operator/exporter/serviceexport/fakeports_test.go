// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// fakePorts is an agent that binds at once what it is told to.
type fakePorts struct {
	changed func(types.NamespacedName)

	mu          sync.Mutex
	served      map[types.NamespacedName]map[int32]agent.Endpoint
	states      map[string]PortState // of ports that are not bound at once
	unreachable string
	named       []string // named are the URLs that can be sealed.
	withheld    map[types.NamespacedName]bool
}

func (p *fakePorts) Serve(export types.NamespacedName, ports map[int32]agent.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.served[export] = ports
}

func (p *fakePorts) Seal(u account.EndpointURL) (*sealed.Identity, *status.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.named, u.String()) {
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "no certificate names %s", u)
	}
	return &sealed.Identity{}, nil
}

// name makes the URLs those that can be sealed.
func (p *fakePorts) name(urls ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named = urls
}

// isWithheld reports whether an export was withheld last.
func (p *fakePorts) isWithheld(export types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withheld[export]
}

func (p *fakePorts) Withhold(export types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.served, export)
	p.withheld = map[types.NamespacedName]bool{export: true}
}

func (p *fakePorts) Keep(types.NamespacedName) {}

func (p *fakePorts) Remove(export types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.served, export)
}

func (p *fakePorts) Serves(export types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.served[export]) > 0
}

func (p *fakePorts) State(_ types.NamespacedName, port int32) PortState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state, ok := p.states[fmt.Sprint(port)]; ok {
		return state
	}
	return PortState{Bound: true}
}

func (p *fakePorts) Unreachable() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unreachable
}

// answer sets what came of the binds of a port, of all exports.
func (p *fakePorts) answer(port int32, state PortState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states[fmt.Sprint(port)] = state
}

// urls returns the URLs that are bound for an export.
func (p *fakePorts) urls(export types.NamespacedName) (urls []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.served[export] {
		urls = append(urls, e.Binding+" "+e.URL.String()+" -> "+e.Upstream.Host+":"+fmt.Sprint(e.Upstream.Port))
	}
	slices.Sort(urls)
	return urls
}
