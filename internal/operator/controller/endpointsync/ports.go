// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// PortRange is the range of target ports, both ends included.
type PortRange struct {
	First, Last int32
}

// ParsePortRange parses a range such as "10000-32767". field names the value in errors.
func ParsePortRange(field, s string) (PortRange, error) {
	first, last, ok := strings.Cut(s, "-")
	f, err1 := strconv.ParseUint(first, 10, 16)
	l, err2 := strconv.ParseUint(last, 10, 16)
	if !ok || err1 != nil || err2 != nil || f < 1024 || f > l {
		return PortRange{}, account.Invalid(field, s,
			"give the first and the last port as FIRST-LAST, both from 1024 to 65535, such as 10000-32767")
	}
	return PortRange{First: int32(f), Last: int32(l)}, nil
}

func (r PortRange) size() int32 { return r.Last - r.First + 1 }

// String returns "first-last".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// portKey is one port of one hostname.
type portKey struct {
	hostname string
	port     int32
}

// Ports allocates target ports. Each namespace has one allocator: the leader's. It is safe for
// concurrent use.
type Ports struct {
	portRange PortRange
	restTime  time.Duration
	clock     clock.PassiveClock

	mu sync.Mutex
	// target port -> its key
	holder       map[int32]portKey
	byHostname   map[string]map[int32]int32 // hostname -> port -> target port
	restingUntil map[int32]time.Time        // when a released target port may be used again
}

// NewPorts returns an allocator. A released port is not used again for the rest time.
func NewPorts(portRange PortRange, rest time.Duration, clock clock.PassiveClock) *Ports {
	return &Ports{portRange: portRange, restTime: rest, clock: clock, holder: map[int32]portKey{},
		byHostname:   map[string]map[int32]int32{},
		restingUntil: map[int32]time.Time{}}
}

// reserve records that an object or a Service already uses target for the key. It returns false if
// another key has it, or if it is outside the range, which may be all that the forwarders' network
// policy allows.
func (p *Ports) reserve(key portKey, target int32) bool {
	if target < p.portRange.First || target > p.portRange.Last {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if holder, taken := p.holder[target]; taken {
		return holder == key
	}
	if old, ok := p.byHostname[key.hostname][key.port]; ok {
		p.free(key, old)
	}
	p.assign(key, target)
	return true
}

// isHeldBy reports whether the key has that target port.
func (p *Ports) isHeldBy(key portKey, target int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holder[target] == key
}

// allocate returns the key's target port, a random free one the first time. false means that none
// is free.
func (p *Ports) allocate(key portKey) (int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if target, ok := p.byHostname[key.hostname][key.port]; ok {
		return target, true
	}
	now, start := p.clock.Now(), rand.Int32N(p.portRange.size())
	for i := range p.portRange.size() {
		target := p.portRange.First + (start+i)%p.portRange.size()
		if _, taken := p.holder[target]; taken || now.Before(p.restingUntil[target]) {
			continue
		}
		p.assign(key, target)
		return target, true
	}
	return 0, false
}

// releaseExcept releases the hostname's ports other than those kept.
func (p *Ports) releaseExcept(hostname string, keep func(port int32) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, target := range p.byHostname[hostname] {
		if !keep(port) {
			p.free(portKey{hostname, port}, target)
		}
	}
}

// assign gives target to the key. mu must be held.
func (p *Ports) assign(key portKey, target int32) {
	if p.byHostname[key.hostname] == nil {
		p.byHostname[key.hostname] = map[int32]int32{}
	}
	p.holder[target], p.byHostname[key.hostname][key.port] = key, target
	delete(p.restingUntil, target)
}

// free releases target. mu must be held.
func (p *Ports) free(key portKey, target int32) {
	delete(p.byHostname[key.hostname], key.port)
	if len(p.byHostname[key.hostname]) == 0 {
		delete(p.byHostname, key.hostname)
	}
	delete(p.holder, target)
	p.restingUntil[target] = p.clock.Now().Add(p.restTime)
}

// seed reserves the target ports of our objects and Services. Of two objects with one target port
// the older keeps it. A Service counts only if its object is missing, so that the re-created object
// listens where the Service points: an upstream Service, or a target Service with EndpointSlices.
func (p *Ports) seed(own installation.Installation, objects []v1alpha1.BoundEndpoint, services []corev1.Service) {
	slices.SortFunc(objects, func(a, b v1alpha1.BoundEndpoint) int { return v1alpha1.CompareAge(&a, &b) })
	named := map[portKey]bool{}
	for i := range objects {
		for _, port := range objects[i].Spec.Ports {
			key := portKey{objects[i].Name, port.Port}
			named[key] = true
			p.reserve(key, port.TargetPort)
		}
	}
	for i := range services {
		hostname := services[i].Annotations[installation.AnnotationHostname]
		isAlias := services[i].Spec.Type == corev1.ServiceTypeExternalName // without target ports
		if hostname == "" || isAlias || !own.Owns(&services[i]) {
			continue
		}
		for _, port := range services[i].Spec.Ports {
			if key := (portKey{hostname, port.Port}); !named[key] {
				p.reserve(key, port.TargetPort.IntVal)
			}
		}
	}
}
