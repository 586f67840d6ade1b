// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

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
