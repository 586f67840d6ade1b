// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderaddresses

import (
	"context"
	"fmt"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
)

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
