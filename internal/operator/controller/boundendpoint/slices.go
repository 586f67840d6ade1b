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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;update;delete

// sliceWriter makes and deletes the EndpointSlices of target Services. It is safe for concurrent
// use.
type sliceWriter struct {
	client    client.Client
	live      client.Reader
	layout    Layout
	addresses forwarderaddresses.Provider
	owned     *owned.Writer
	none      bool // the installation has no right to EndpointSlices
	uncached  bool // client does not have the slices
}

// ensure makes the EndpointSlices of a target Service, one for each family, or returns what
// prevents it.
func (w *sliceWriter) ensure(ctx context.Context, b *v1alpha1.BoundEndpoint, target *corev1.Service) *status.Problem {
	addresses, release, ok := w.addresses.Acquire(b.Name)
	if !ok {
		return status.Pending()
	}
	defer release()
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if found := w.ensureFamily(ctx, b, target, family, addresses); found != nil {
			return found
		}
	}
	return nil
}

// ensureFamily makes the slice of one family. It is deleted if the cluster does not have the family.
func (w *sliceWriter) ensureFamily(
	ctx context.Context, b *v1alpha1.BoundEndpoint, target *corev1.Service, family discoveryv1.AddressType,
	addresses forwarderaddresses.Addresses,
) *status.Problem {
	desired := w.layout.endpointSlice(b, target, family, addresses[family])
	key := client.ObjectKeyFromObject(desired)
	live := &discoveryv1.EndpointSlice{}
	_, wanted := addresses[family]
	reader := client.Reader(w.client)
	if w.uncached {
		reader = w.live
	}
	err := reader.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}
	switch {
	case err != nil:
		err = fmt.Errorf("reading EndpointSlice %s: %w", key, err)
	case wanted:
		err = w.owned.EnsureSlice(ctx, b.Name, live, desired)
	case live != nil:
		err = w.owned.DeleteSlice(ctx, b.Name, live)
	}
	if errors.Is(err, owned.ErrForeign) {
		return &status.Problem{Reason: v1alpha1.ReasonConflict, RetryAfter: owned.RefusalRetry,
			Message: fmt.Sprintf("EndpointSlice %s is not changed: it belongs to another owner", key)}
	}
	return problemFromError(err)
}

// remove deletes the slices of a hostname that is projected by ExternalName. Where slices are
// not cached, it does so when the status still has the other projection.
func (w *sliceWriter) remove(ctx context.Context, b *v1alpha1.BoundEndpoint, target *corev1.Service) *status.Problem {
	uncached := w.uncached && recordedProjection(b) == v1alpha1.ProjectionExternalName
	if w.none || uncached {
		return nil
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if found := w.ensureFamily(ctx, b, target, family, nil); found != nil &&
			found.Reason != v1alpha1.ReasonConflict {
			return found
		}
	}
	return nil
}

// hasForwarders reports whether Kubernetes' EndpointSlices of a Service in the operator's namespace
// list a ready forwarder.
func (w *sliceWriter) hasForwarders(ctx context.Context, s *corev1.Service) (bool, error) {
	var list discoveryv1.EndpointSliceList
	if err := w.live.List(ctx, &list, client.InNamespace(s.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: s.Name}); err != nil {
		return false, fmt.Errorf("listing the EndpointSlices of Service %s: %w", client.ObjectKeyFromObject(s), err)
	}
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return true, nil
			}
		}
	}
	return false, nil
}
