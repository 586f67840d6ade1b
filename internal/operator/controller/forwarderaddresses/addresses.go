// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderaddresses

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
)

// Addresses are the endpoints of the forwarders by family, sorted by address. A family without
// forwarders has an empty list; one that the cluster does not have is absent. They must not be
// modified.
type Addresses map[discoveryv1.AddressType][]discoveryv1.Endpoint

// copyEndpoints returns the endpoints of Kubernetes' slices that can serve, with what is copied of
// them. The same address in two slices, as when Kubernetes moves it, is listed once.
func copyEndpoints(all []*discoveryv1.EndpointSlice) Addresses {
	result := Addresses{}
	for _, slice := range all {
		family := slice.AddressType
		if family != discoveryv1.AddressTypeIPv4 && family != discoveryv1.AddressTypeIPv6 {
			continue
		}
		if _, ok := result[family]; !ok {
			result[family] = []discoveryv1.Endpoint{}
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) > 0 && (isReady(e) || ptr.Deref(e.Conditions.Serving, false)) {
				result[family] = append(result[family], discoveryv1.Endpoint{
					Addresses: e.Addresses[:1], Conditions: e.Conditions, NodeName: e.NodeName, Zone: e.Zone,
				})
			}
		}
	}
	for family, endpoints := range result {
		slices.SortFunc(endpoints, func(a, b discoveryv1.Endpoint) int {
			return cmp.Or(cmp.Compare(a.Addresses[0], b.Addresses[0]), compareReady(a, b))
		})
		result[family] = slices.CompactFunc(endpoints, func(a, b discoveryv1.Endpoint) bool {
			return a.Addresses[0] == b.Addresses[0]
		})
	}
	return result
}

// compareReady orders ready endpoints first.
func compareReady(a, b discoveryv1.Endpoint) int {
	switch {
	case isReady(a) == isReady(b):
		return 0
	case isReady(a):
		return -1
	}
	return 1
}

// isReady reports whether the endpoint is ready. An absent condition means ready, as the API
// defines it.
func isReady(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }

// ready returns the ready addresses of all families, sorted.
func (a Addresses) ready() []string {
	var all []string
	for _, endpoints := range a {
		for _, e := range endpoints {
			if isReady(e) {
				all = append(all, e.Addresses[0])
			}
		}
	}
	slices.Sort(all)
	return all
}

// only returns the endpoints without the ready ones that are not recorded.
func (a Addresses) only(recorded []string) Addresses {
	result := make(Addresses, len(a))
	for family, endpoints := range a {
		result[family] = slices.DeleteFunc(slices.Clone(endpoints), func(e discoveryv1.Endpoint) bool {
			return isReady(e) && !slices.Contains(recorded, e.Addresses[0])
		})
	}
	return result
}

// Ready returns the addresses that EndpointSlices list as ready.
func Ready(all []discoveryv1.EndpointSlice) map[string]struct{} {
	listed := map[string]struct{}{}
	for i := range all {
		for _, e := range all[i].Endpoints {
			for _, address := range e.Addresses {
				if isReady(e) {
					listed[address] = struct{}{}
				}
			}
		}
	}
	return listed
}

// union returns the sorted elements of both.
func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// EndpointSlices reads the cluster's EndpointSlices; it is a Cluster.
type EndpointSlices struct {
	Config       *rest.Config
	Service      string        // Service selects the forwarders.
	Live         client.Reader // Live reads from the API server.
	Installation installation.Installation
	Namespaces   []string // Namespaces are those that may have slices of ours; none: all.
}

// Watch implements Cluster.
func (s *EndpointSlices) Watch(ctx context.Context, update func([]*discoveryv1.EndpointSlice)) error {
	api, err := discoveryclient.NewForConfig(s.Config)
	if err != nil {
		return fmt.Errorf("making client for EndpointSlices: %w", err)
	}
	lw := cache.NewFilteredListWatchFromClient(api.RESTClient(), "endpointslices", s.Installation.Namespace,
		func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + s.Service })
	set := informer.NewSet()
	slices, err := set.Add(lw, &discoveryv1.EndpointSlice{}, func(o any) (any, error) { return o, nil })
	if err != nil {
		return err
	}
	set.Run(ctx, func() {
		var all []*discoveryv1.EndpointSlice
		for _, o := range slices.List() {
			all = append(all, o.(*discoveryv1.EndpointSlice))
		}
		update(all)
	})
	return nil
}

// Listed implements Cluster. Listed namespaces that are gone or refuse have no slices.
func (s *EndpointSlices) Listed(ctx context.Context) (map[string]struct{}, error) {
	all, namespaces := map[string]struct{}{}, s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		var list discoveryv1.EndpointSliceList
		err := s.Live.List(ctx, &list, client.InNamespace(namespace),
			client.MatchingLabels(s.Installation.SliceSelector()))
		isGone := namespace != metav1.NamespaceAll && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err))
		if err != nil && !isGone {
			return nil, fmt.Errorf("listing EndpointSlices: %w", err)
		}
		maps.Copy(all, Ready(list.Items))
	}
	return all, nil
}
