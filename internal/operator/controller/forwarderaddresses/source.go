// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderaddresses

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
)

// WatchService returns a function for Options.Source that watches the EndpointSlices of a Service.
func WatchService(
	config *rest.Config, namespace, service string,
) (func(context.Context, func([]*discoveryv1.EndpointSlice)) error, error) {
	client, err := discoveryclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client for EndpointSlices: %w", err)
	}
	return func(ctx context.Context, update func([]*discoveryv1.EndpointSlice)) error {
		lw := cache.NewFilteredListWatchFromClient(client.RESTClient(), "endpointslices", namespace,
			func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + service })
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
	}, nil
}
