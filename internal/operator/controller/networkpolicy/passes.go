// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// coverage is what the last pass knew of one hostname.
type coverage struct {
	ports string // result of portsText
	err   error  // what prevented its policies
}

// passes is the result of the last pass. It is safe for concurrent use.
type passes struct {
	mu          sync.Mutex
	byHostname  map[string]coverage
	generations map[types.UID]int64
	awaited     map[string]struct{}

	passed bool
	err    error // what can leave any port open that is to be closed; nil: nothing
}

func newPasses() passes {
	return passes{byHostname: map[string]coverage{}, awaited: map[string]struct{}{}}
}

// portsText returns the ports and target ports that the Services of a hostname have.
func portsText(b *v1alpha1.BoundEndpoint) string {
	bound := slices.DeleteFunc(slices.Clone(b.Spec.Ports), func(p v1alpha1.BoundPort) bool {
		return p.State == v1alpha1.StateReleased
	})
	slices.SortFunc(bound, func(a, b v1alpha1.BoundPort) int { return cmp.Compare(a.Port, b.Port) })
	var text strings.Builder
	for _, p := range bound {
		_, _ = fmt.Fprintf(&text, "%d:%d,", p.Port, p.TargetPort)
	}
	return text.String()
}

// setResult records what Condition reports.
func (p *passes) setResult(found failures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed, p.err = true, errors.Join(found.base, found.others)
}

// record records a pass over these objects, and returns the hostnames that waited for it.
func (p *passes) record(
	objects []v1alpha1.BoundEndpoint, generations map[types.UID]int64, found failures,
) (notify []string) {
	byHostname := make(map[string]coverage, len(objects))
	for i := range objects {
		b := &objects[i]
		errs := []error{found.base, found.others}
		for _, port := range b.Spec.Ports {
			errs = append(errs, found.ports[port.TargetPort])
		}
		byHostname[b.Name] = coverage{portsText(b), errors.Join(errs...)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byHostname, p.generations = byHostname, generations
	notify = slices.Collect(maps.Keys(p.awaited))
	clear(p.awaited)
	return notify
}

// Condition returns the condition NetworkPoliciesWritten of the KubernetesOperator, without
// generation and time; nil before the first pass.
func (r *Reconciler) Condition() *metav1.Condition {
	p := &r.passes
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &metav1.Condition{Type: v1alpha1.ConditionNetworkPoliciesWritten, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonWritten, Message: "the forwarders' NetworkPolicies are written"}
	switch {
	case !p.passed:
		return nil
	case p.err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotWritten, p.err.Error()
	}
	return c
}

// Written reports whether the policies of the object's ports are written; the error is what
// prevents it. While it is false, the hostname is notified after the next pass.
func (r *Reconciler) Written(b *v1alpha1.BoundEndpoint) (bool, error) {
	if r.Disabled {
		return true, nil
	}
	p := &r.passes
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.byHostname[b.Name]
	if ok && last.ports == portsText(b) && last.err == nil {
		return true, nil
	}
	p.awaited[b.Name] = struct{}{}
	if !ok || last.ports != portsText(b) {
		return false, nil
	}
	return false, last.err
}

// Problem returns whether the last pass applied the EndpointAccess in this generation, and what
// prevented the policies of the hostnames that match.
func (r *Reconciler) Problem(uid types.UID, generation int64, match func(hostname string) bool) (bool, error) {
	p := &r.passes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.generations[uid] != generation {
		return false, nil
	}
	for hostname, c := range p.byHostname {
		if c.err != nil && match(hostname) {
			return true, c.err
		}
	}
	return true, nil
}
