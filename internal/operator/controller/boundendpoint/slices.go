// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;update;delete

// ensureSlices makes the EndpointSlices of a target Service, one for each family, or returns what
// prevents it.
func (r *Reconciler) ensureSlices(ctx context.Context, b *v1alpha1.BoundEndpoint, target *corev1.Service) *problem {
	addresses, release, ok := r.Addresses.Acquire(b.Name)
	if !ok {
		return &problem{pending: true}
	}
	defer release()
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if found := r.ensureSlice(ctx, b, target, family, addresses); found != nil {
			return found
		}
	}
	return nil
}

// ensureSlice makes the slice of one family. It is deleted if the cluster does not have the family.
func (r *Reconciler) ensureSlice(
	ctx context.Context, b *v1alpha1.BoundEndpoint, target *corev1.Service, family discoveryv1.AddressType,
	addresses forwarderaddresses.Addresses,
) *problem {
	desired := r.Layout.endpointSlice(b, target, family, addresses[family])
	key := client.ObjectKeyFromObject(desired)
	live := &discoveryv1.EndpointSlice{}
	_, wanted := addresses[family]
	err := r.getSlice(ctx, key, live)
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}
	switch {
	case err != nil:
		err = fmt.Errorf("reading EndpointSlice %s: %w", key, err)
	case wanted:
		err = r.objects.EnsureSlice(ctx, b.Name, live, desired)
	case live != nil:
		err = r.objects.DeleteSlice(ctx, b.Name, live)
	}
	if errors.Is(err, owned.ErrForeign) {
		return &problem{reason: v1alpha1.ReasonConflict, retryAfter: refusalRetry,
			message: fmt.Sprintf("EndpointSlice %s is not changed: it belongs to another owner", key)}
	}
	return problemFromError(err)
}

// removeSlices deletes the slices of a hostname that is projected by ExternalName. Where slices are
// not cached, it does so when the status still has the other projection.
func (r *Reconciler) removeSlices(ctx context.Context, b *v1alpha1.BoundEndpoint, target *corev1.Service) *problem {
	uncached := r.Targets != nil && recordedProjection(b) == v1alpha1.ProjectionExternalName
	if r.WithoutSlices || uncached || r.switches.active(b.Name) {
		return nil
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if found := r.ensureSlice(ctx, b, target, family, nil); found != nil &&
			found.reason != v1alpha1.ReasonConflict {
			return found
		}
	}
	return nil
}

// getSlice reads a slice from the cache. Those of listed namespaces are not cached.
func (r *Reconciler) getSlice(ctx context.Context, key client.ObjectKey, into *discoveryv1.EndpointSlice) error {
	if r.Targets == nil {
		return r.Client.Get(ctx, key, into)
	}
	return r.Live.Get(ctx, key, into)
}
