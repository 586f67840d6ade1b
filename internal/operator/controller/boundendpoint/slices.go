// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;update;delete

// maxDenials is how often a slice that admission denied is written again, once every conflictRetry,
// before that is reported.
const maxDenials = 20

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
	if wanted && apierrors.IsNotFound(err) {
		err = r.Client.Create(ctx, desired)
		if !apierrors.IsAlreadyExists(err) {
			return r.sliceProblem(b, key, err)
		}
		err = r.Live.Get(ctx, key, live) // the cache has only those with our labels
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return problemFromError(fmt.Errorf("reading EndpointSlice %s: %w", key, err))
	case !r.Layout.Installation.Owns(live):
		return &problem{reason: v1alpha1.ReasonConflict, retryAfter: refusalRetry,
			message: fmt.Sprintf("EndpointSlice %s is not changed: it belongs to another owner", key)}
	case !wanted:
		err = client.IgnoreNotFound(r.Client.Delete(ctx, live,
			client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}))
	default:
		next, different := repairedSlice(live, desired)
		if !different {
			return nil
		}
		err = r.Client.Update(ctx, next)
	}
	return r.sliceProblem(b, key, err)
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

// sliceProblem returns the problem that the result of a write of a slice is, nil for none. A write
// that admission denied is repeated at once, for a second: the API server may not have seen a new
// forwarder in Kubernetes' own slices yet.
func (r *Reconciler) sliceProblem(b *v1alpha1.BoundEndpoint, key client.ObjectKey, err error) *problem {
	if err == nil {
		r.sliceDenials.Delete(b.Name)
		return nil
	}
	found := problemFromError(fmt.Errorf("writing EndpointSlice %s: %w", key, err))
	denials, _ := r.sliceDenials.LoadOrStore(b.Name, 0)
	if found.reason == v1alpha1.ReasonAdmissionDenied && denials.(int) < maxDenials {
		r.sliceDenials.Store(b.Name, denials.(int)+1)
		return &problem{stale: true, err: err}
	}
	return found
}

// getSlice reads a slice from the cache. Those of listed namespaces are not cached.
func (r *Reconciler) getSlice(ctx context.Context, key client.ObjectKey, into *discoveryv1.EndpointSlice) error {
	if r.Targets == nil {
		return r.Client.Get(ctx, key, into)
	}
	return r.Live.Get(ctx, key, into)
}
