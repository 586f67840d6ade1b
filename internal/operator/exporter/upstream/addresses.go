// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// Ref is a port of a Service.
type Ref struct {
	Scheme  string // Scheme is "http", "https" or "tcp".
	Service types.NamespacedName
	Port    int32
	Pod     string // Pod is the hostname of the only pod that is meant, as Pods returns it; "" = any.
}

// Host returns the Service's name in the cluster, "<name>.<namespace>.svc", or
// "<pod>.<name>.<namespace>.svc". The certificate of an https upstream has to be for it.
func (r Ref) Host() string {
	host := r.Service.Name + "." + r.Service.Namespace + ".svc"
	if r.Pod != "" {
		return r.Pod + "." + host
	}
	return host
}

// Rules are what upstreams may be.
type Rules struct {
	ClusterDomain  string // ClusterDomain is the cluster's, such as cluster.local.
	CrossNamespace bool   // CrossNamespace admits Services of other namespaces than the object's.
}

// indexService indexes EndpointSlices by the name of their Service.
const indexService = "fairlead.service"

// IndexSlices adds the index of EndpointSlices that Lookup needs.
func IndexSlices(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexService, func(o client.Object) []string {
		return []string{ServiceOf(o)}
	}); err != nil {
		return fmt.Errorf("indexing EndpointSlices: %w", err)
	}
	return nil
}

// ServiceOf returns the name of an EndpointSlice's Service, "" for none.
func ServiceOf(slice client.Object) string { return slice.GetLabels()[discoveryv1.LabelServiceName] }

// Lookup returns the Ref's port of its Service and its addresses, as the cache has them.
func (rules Rules) Lookup(ctx context.Context, cache client.Reader, ref Ref) (Addresses, *status.Problem, error) {
	service := &corev1.Service{}
	if err := cache.Get(ctx, ref.Service, service); apierrors.IsNotFound(err) {
		service = nil
	} else if err != nil {
		return Addresses{}, nil, fmt.Errorf("reading Service %s: %w", ref.Service, err)
	}
	target, problem := ref.Resolve(service)
	if problem == nil {
		problem = rules.checkService(service, ref.Service)
	}
	if problem != nil {
		return Addresses{}, problem, nil
	}
	all, err := slicesOf(ctx, cache, ref.Service)
	if err != nil {
		return Addresses{}, nil, err
	}
	target.Pod = ref.Pod
	return rules.addressesOf(target, all), nil, nil
}

// slicesOf returns the EndpointSlices of a Service, which belong to the cache.
func slicesOf(ctx context.Context, cache client.Reader, service types.NamespacedName) (
	[]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := cache.List(ctx, &list, client.InNamespace(service.Namespace),
		client.MatchingFields{indexService: service.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading EndpointSlices of %s: %w", service, err)
	}
	return list.Items, nil
}

// Target is a port of a Service as EndpointSlices have it.
type Target struct {
	PortName string            // PortName is that of the Service's port and of the slices'; "" for an only port.
	Families []corev1.IPFamily // Families are those of the Service, preferred first; empty: not known.
	Pod      string            // Pod is the hostname of the only pod that is meant; "" = any.
}

// Resolve finds the Ref's port in its Service, nil where there is none.
func (r Ref) Resolve(service *corev1.Service) (Target, *status.Problem) {
	problem := func(reason, format string, args ...any) (Target, *status.Problem) {
		return Target{}, status.Problemf(reason, "Service %s %s", r.Service, fmt.Sprintf(format, args...))
	}
	if service == nil {
		return Target{}, status.Problemf(v1alpha1.ReasonUpstreamNotFound, path.NoService, r.Service)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return problem(v1alpha1.ReasonUnsupportedService, "is of type ExternalName and has no endpoints in this "+
			"cluster: name a Service with endpoints")
	}
	if len(service.Spec.Ports) == 0 {
		return problem(v1alpha1.ReasonUnsupportedService, "has no ports: give it port %d", r.Port)
	}
	var tcp []string
	for _, p := range service.Spec.Ports {
		if p.Protocol != corev1.ProtocolTCP && p.Protocol != "" {
			continue
		}
		if p.Port == r.Port {
			return Target{PortName: p.Name, Families: service.Spec.IPFamilies}, nil
		}
		tcp = append(tcp, strconv.Itoa(int(p.Port)))
	}
	if len(tcp) == 0 {
		return problem(v1alpha1.ReasonUnsupportedService, "has no TCP port, and others cannot be exported")
	}
	return problem(v1alpha1.ReasonPortNotFound, "has no TCP port %d; it has %s", r.Port,
		strings.Join(slices.Compact(tcp), ", "))
}

// Addresses are where a Target can be dialed.
type Addresses struct {
	// Ready are the addresses that are ready, in the order of the Target's families.
	Ready []netip.AddrPort
	// Terminating are those that still serve although they terminate: for use when none is ready.
	Terminating []netip.AddrPort
	// Unused is why an address of a slice is not among them; "" if all are, or for several reasons
	// the first.
	Unused string
}

// Usable returns what may be dialed: ready addresses, or where there are none, terminating ones.
func (a Addresses) Usable() []netip.AddrPort {
	if len(a.Ready) > 0 {
		return a.Ready
	}
	return a.Terminating
}

// ReasonOf returns the reason of the condition UpstreamReady for a Service without addresses.
func (a Addresses) ReasonOf(ref Ref) *status.Problem {
	p := status.Problemf(v1alpha1.ReasonNoReadyEndpoints, path.NoReadyEndpoint+" for port %d", ref.Service,
		ref.Port)
	if a.Unused != "" {
		p.Message += "; " + a.Unused
	}
	return p
}

// addressesOf returns the addresses of the Target in the EndpointSlices of its Service that the
// rules admit. A Service's port and its slices' have the same name; their numbers are those of the
// pods.
func (rules Rules) addressesOf(t Target, endpointSlices []discoveryv1.EndpointSlice) Addresses {
	var found Addresses
	seen := map[netip.AddrPort]bool{}
	for _, family := range t.families() {
		for i := range endpointSlices {
			s := &endpointSlices[i]
			if string(s.AddressType) != string(family) {
				continue
			}
			port := t.portOf(s)
			if port == 0 {
				continue
			}
			if why := rules.checkSlice(s); why != "" {
				found.Unused = cmp.Or(found.Unused, why)
				continue
			}
			for j := range s.Endpoints {
				if e := &s.Endpoints[j]; t.Pod == "" || t.Pod == hostnameOf(e) {
					found.add(e, port, seen)
				}
			}
		}
	}
	return found
}

// families returns both address families, the Service's preferred one first.
func (t Target) families() []corev1.IPFamily {
	if len(t.Families) > 0 && t.Families[0] == corev1.IPv6Protocol {
		return []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

// portOf returns the number of the Target's port in the slice, 0 if it has none.
func (t Target) portOf(s *discoveryv1.EndpointSlice) uint16 {
	i := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
		return p.Port != nil && (p.Name == nil && t.PortName == "" || p.Name != nil && *p.Name == t.PortName) &&
			(p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP)
	})
	if i < 0 || *s.Ports[i].Port < 1 || *s.Ports[i].Port > 65535 {
		return 0
	}
	return uint16(*s.Ports[i].Port)
}

func (a *Addresses) add(e *discoveryv1.Endpoint, port uint16, seen map[netip.AddrPort]bool) {
	ready := ptr.Deref(e.Conditions.Ready, true)
	// Only the first address counts, as for kube-proxy: further ones are the same endpoint.
	if len(e.Addresses) == 0 || !ready && !ptr.Deref(e.Conditions.Serving, false) {
		return
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	address := netip.AddrPortFrom(ip.Unmap(), port)
	if err != nil || !isDialable(ip) {
		a.Unused = cmp.Or(a.Unused, fmt.Sprintf("the address %q is not one of a pod", account.Shorten(e.Addresses[0])))
		return
	}
	if seen[address] {
		return
	}
	seen[address] = true
	switch {
	case ready:
		a.Ready = append(a.Ready, address)
	case ptr.Deref(e.Conditions.Terminating, false):
		a.Terminating = append(a.Terminating, address)
	}
}

// A user who writes EndpointSlices chooses addresses that the exporter connects with from its own
// place in the network: pods of other namespaces, nodes, the API server (CVE-2021-25740). Without
// CrossNamespace only those count that Kubernetes' controller writes, of pods that a Service of
// the namespace selects.

// SliceController is how Kubernetes' controller of EndpointSlices marks its own.
const SliceController = "endpointslice-controller.k8s.io"

// checkService returns why the addresses of a Service are not used, or nil.
func (rules Rules) checkService(service *corev1.Service, name types.NamespacedName) *status.Problem {
	if rules.CrossNamespace || len(service.Spec.Selector) > 0 {
		return nil
	}
	return notAllowed("Service %s has no selector: its addresses are those that were written into its "+
		"EndpointSlices, which may lie outside of the namespace; give it a selector, or set export.crossNamespace",
		name)
}

// checkSlice returns why the addresses of a slice are not used, or "".
func (rules Rules) checkSlice(s *discoveryv1.EndpointSlice) string {
	if rules.CrossNamespace || s.Labels[discoveryv1.LabelManagedBy] == SliceController {
		return ""
	}
	return fmt.Sprintf("EndpointSlice %s is not of Kubernetes' own controller, and is used only with "+
		"export.crossNamespace", s.Name)
}

// isDialable reports whether an address can be a pod's: not one of the exporter's own machine or
// link, such as a cloud's metadata service, and not one of many machines.
func isDialable(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsValid() && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && ip.Zone() == ""
}

// Pods returns the pods of a headless Service, sorted by hostname, ready or not, and why those of a
// slice are left out. A pod of two families is listed once, by the Service's preferred one. The
// problem is why none can be dialed.
func (rules Rules) Pods(ctx context.Context, cache client.Reader, service *corev1.Service) (
	pods []account.ServiceExportPod, unused string, problem *status.Problem, err error,
) {
	name := client.ObjectKeyFromObject(service)
	if problem = rules.checkService(service, name); problem != nil {
		return nil, "", problem, nil
	}
	all, err := slicesOf(ctx, cache, name)
	if err != nil {
		return nil, "", nil, err
	}
	family := Target{Families: service.Spec.IPFamilies}.families()[0]
	ready := map[string]bool{}
	for i := range all {
		if string(all[i].AddressType) != string(family) {
			continue
		}
		if why := rules.checkSlice(&all[i]); why != "" {
			unused = cmp.Or(unused, why)
			continue
		}
		for j := range all[i].Endpoints {
			e := &all[i].Endpoints[j]
			if host := hostnameOf(e); account.ValidClusterID(host) {
				ready[host] = ready[host] || ptr.Deref(e.Conditions.Ready, true)
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(ready)) {
		pods = append(pods, account.ServiceExportPod{Hostname: host, Ready: ready[host]})
	}
	return pods, unused, nil, nil
}

// hostnameOf returns the hostname of a pod: that of its spec, as a StatefulSet's pods have it, or
// its address with dashes, as CoreDNS calls it.
func hostnameOf(e *discoveryv1.Endpoint) string {
	if host := ptr.Deref(e.Hostname, ""); host != "" || len(e.Addresses) == 0 {
		return host
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.Addresses[0])
}
