// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
)

const (
	// aliveFor is how long the last sign of life is valid.
	aliveFor = 5 * time.Second
	// missingFor is how long Lookup does not wait again for an address that it waited for in vain.
	missingFor = time.Minute
	// maxMissing is how many such addresses are kept.
	maxMissing = 10_000
)

// key names a pod.
type key struct {
	namespace unique.Handle[string]
	name      string
}

// nodeAddresses are the addresses of a pod's node, one for each family.
type nodeAddresses [2]netip.Addr

// pod is the kept part of a pod.
type pod struct {
	account     unique.Handle[string] // ServiceAccount
	annotations map[string]string     // selected annotations; nil: none are selected
	labels      caller.Labels
	ips         []netip.Addr // addresses of the pod; empty: it has those of its node
	terminating bool         // terminating reports that the addresses may be reused without an event.
	node        unique.Handle[nodeAddresses]
}

// table holds all pods. It is safe for concurrent use.
type table struct {
	selected Annotations

	mu      sync.Mutex
	pods    map[key]pod
	byIP    map[netip.Addr][]key
	nodeIPs map[netip.Addr]int // addresses of nodes, and how many pods name them
	alive   time.Time          // time of the last sign of life of the cluster
	missing map[netip.Addr]time.Time
	changed chan struct{} // changed is closed and replaced when an address appears; nil: no lookup waits.

	labelsChanged chan struct{} // labelsChanged receives after labels of pods have changed.
}

func newTable(selected Annotations) *table {
	t := &table{selected: selected, missing: map[netip.Addr]time.Time{}, labelsChanged: make(chan struct{}, 1)}
	t.clear()
	return t
}

func (t *table) clear() {
	t.pods, t.byIP, t.nodeIPs = map[key]pod{}, map[netip.Addr][]key{}, map[netip.Addr]int{}
}

// newEntry converts a pod of the API. It returns nil for a finished pod.
func (t *table) newEntry(p *corev1.Pod) (key, *pod) {
	k := key{unique.Make(p.Namespace), p.Name}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return k, nil
	}
	e := &pod{account: unique.Make(p.Spec.ServiceAccountName), annotations: t.selected.selectFrom(p),
		labels:      caller.NewLabels(p.Labels),
		terminating: p.DeletionTimestamp != nil, node: unique.Make(node(p))}
	if !p.Spec.HostNetwork {
		e.ips = addresses(p)
	}
	return k, e
}

func node(p *corev1.Pod) nodeAddresses {
	addresses := nodeAddresses{parse(p.Status.HostIP)}
	for _, ip := range p.Status.HostIPs {
		if a := parse(ip.IP); a != addresses[0] {
			addresses[1] = a
		}
	}
	return addresses
}

func addresses(p *corev1.Pod) []netip.Addr {
	ips := make([]netip.Addr, 0, max(len(p.Status.PodIPs), 1))
	for _, ip := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if a := parse(ip.IP); a.IsValid() && !slices.Contains(ips, a) {
			ips = append(ips, a)
		}
	}
	return slices.Clip(ips)
}

// parse parses an address; the result is invalid if text is.
func parse(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return canonical(a)
}

// canonical returns the canonical form of an address.
func canonical(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// replace replaces the table by a complete list.
func (t *table) replace(list map[key]pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	for k, p := range list {
		t.put(k, p)
	}
	t.notifyWaiters()
	t.notifyLabels()
}

// set adds or replaces a pod.
func (t *table) set(p *corev1.Pod) {
	k, e := t.newEntry(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.pods[k]; ok && e != nil && old.labels != e.labels {
		t.notifyLabels()
	}
	t.drop(k)
	if e != nil {
		t.put(k, *e)
		t.notifyWaiters()
	}
}

// remove removes a pod.
func (t *table) remove(p *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(key{unique.Make(p.Namespace), p.Name})
}

// put adds a pod; mu must be held.
func (t *table) put(k key, p pod) {
	t.pods[k] = p
	for _, ip := range p.ips {
		t.byIP[ip] = append(t.byIP[ip], k)
		delete(t.missing, ip)
	}
	for _, ip := range p.node.Value() {
		t.nodeIPs[ip]++
	}
}

// drop removes a pod; mu must be held.
func (t *table) drop(k key) {
	p, ok := t.pods[k]
	if !ok {
		return
	}
	delete(t.pods, k)
	for _, ip := range p.ips {
		if rest := slices.DeleteFunc(t.byIP[ip], func(other key) bool { return other == k }); len(rest) > 0 {
			t.byIP[ip] = rest
		} else {
			delete(t.byIP, ip)
		}
	}
	for _, ip := range p.node.Value() {
		if t.nodeIPs[ip]--; t.nodeIPs[ip] <= 0 {
			delete(t.nodeIPs, ip)
		}
	}
}

// notifyWaiters wakes waiting lookups; mu must be held.
func (t *table) notifyWaiters() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// notifyLabels signals that labels of pods have changed.
func (t *table) notifyLabels() {
	select {
	case t.labelsChanged <- struct{}{}:
	default:
	}
}

// markAlive records a sign of life of the cluster.
func (t *table) markAlive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alive = time.Now()
}

// find returns the pod of an address. Without one, unused reports whether no pod has it while the
// cluster is alive.
func (t *table) find(ip netip.Addr) (k key, p pod, unused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.findLocked(ip)
}

func (t *table) findLocked(ip netip.Addr) (k key, p pod, unused bool) {
	holders := t.byIP[ip]
	switch {
	case time.Since(t.alive) >= aliveFor, t.nodeIPs[ip] > 0, len(holders) > 1:
		return key{}, pod{}, false
	case len(holders) == 1:
		p := t.pods[holders[0]]
		if p.terminating {
			return key{}, pod{}, false
		}
		return holders[0], p, false
	}
	return key{}, pod{}, true
}

// lookup returns the pod of an address. Without one, changed is closed when it is worth looking
// again; nil: it is not.
func (t *table) lookup(ip netip.Addr) (k key, p pod, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, p, unused := t.findLocked(ip)
	if !unused {
		return k, p, nil
	}
	if since, ok := t.missing[ip]; ok && time.Since(since) < missingFor {
		return key{}, pod{}, nil
	}
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return key{}, pod{}, t.changed
}

// recordMissing records that no pod had the address after waiting.
func (t *table) recordMissing(ip netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byIP[ip]) > 0 {
		return
	}
	if len(t.missing) >= maxMissing {
		clear(t.missing)
	}
	t.missing[ip] = time.Now()
}
