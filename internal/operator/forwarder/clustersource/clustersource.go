// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustersource reads a cluster for a forwarder: the BoundEndpoints and the KubernetesOperator
// of its release, whether EndpointSlices list its pod, and whether its namespace is being deleted. It
// is the part of a forwarder that needs a client of Kubernetes.
package clustersource

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// Source implements forwarder.Source with a real cluster.
type Source struct {
	bindings   rest.Interface
	slices     discoveryclient.EndpointSlicesGetter
	namespaces coreclient.NamespacesGetter
	own        installation.Installation

	// observed are the BoundEndpoints, by UID, in the last version that the manager observed. Only
	// Watch uses it.
	observed map[types.UID]*v1alpha1.BoundEndpoint
}

// New returns the source of a release. own is the installation that the BoundEndpoints must belong
// to; others are ignored.
func New(config *rest.Config, own installation.Installation) (*Source, error) {
	bindings, err := process.NewBindingsClient(config)
	if err != nil {
		return nil, err
	}
	slices, err := discoveryclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client for EndpointSlices: %w", err)
	}
	namespaces, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client for namespaces: %w", err)
	}
	return &Source{bindings: bindings, slices: slices, namespaces: namespaces, own: own}, nil
}

// Watch implements forwarder.Source. It retries failing lists and watches, such as those of a missing CRD,
// with back-off.
func (s *Source) Watch(ctx context.Context, update func(forwarder.Objects)) error {
	set := informer.NewSet()
	endpoints, err := s.addInformer(set, "boundendpoints", fields.Everything(), &v1alpha1.BoundEndpoint{})
	if err != nil {
		return err
	}
	operators, err := s.addInformer(set, "kubernetesoperators",
		fields.OneTermEqualSelector("metadata.name", s.own.Release), &v1alpha1.KubernetesOperator{})
	if err != nil {
		return err
	}
	set.Run(ctx, func() { update(s.objects(endpoints, operators)) })
	return nil
}

func (s *Source) addInformer(
	set *informer.Set, resource string, selector fields.Selector, kind runtime.Object,
) (cache.Store, error) {
	lw := cache.NewFilteredListWatchFromClient(s.bindings, resource, s.own.Namespace, func(o *metav1.ListOptions) {
		o.FieldSelector = selector.String()
	})
	return set.Add(lw, kind, transformObject)
}

// transformObject drops what the forwarder does not read. Of a BoundEndpoint's status it keeps
// whether the manager observed the spec, and why there are no Services.
func transformObject(object any) (any, error) {
	if o, ok := object.(*v1alpha1.BoundEndpoint); ok {
		status := v1alpha1.BoundEndpointStatus{}
		if o.Observed() {
			c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionServicesReady)
			status.Conditions = []metav1.Condition{{Type: c.Type, Reason: c.Reason, ObservedGeneration: o.Generation}}
		}
		o.ManagedFields, o.Status = nil, status
	}
	return object, nil
}

// objects returns the BoundEndpoints in the last version that the manager observed, so that a spec
// written by another client opens no port.
func (s *Source) objects(endpoints, operators cache.Store) forwarder.Objects {
	var result forwarder.Objects
	observed := make(map[types.UID]*v1alpha1.BoundEndpoint, len(s.observed))
	for _, object := range endpoints.List() {
		boundEndpoint := object.(*v1alpha1.BoundEndpoint)
		if !s.own.Owns(boundEndpoint) {
			continue
		}
		if !boundEndpoint.Observed() {
			boundEndpoint = s.observed[boundEndpoint.UID]
		}
		if boundEndpoint != nil {
			observed[boundEndpoint.UID] = boundEndpoint
			result.BoundEndpoints = append(result.BoundEndpoints, boundEndpoint)
		}
	}
	s.observed = observed
	if object, ok, _ := operators.GetByKey(s.own.Namespace + "/" + s.own.Release); ok {
		operator := object.(*v1alpha1.KubernetesOperator)
		result.OperatorID, result.OperatorUID = operator.Status.OperatorID, string(operator.UID)
		result.OthersConnected = meta.IsStatusConditionTrue(operator.Status.Conditions,
			v1alpha1.ConditionEdgeReachable)
		if meta.IsStatusConditionTrue(operator.Status.Conditions, v1alpha1.ConditionNetworkPoliciesWritten) {
			result.NetworkPolicies = operator.Status.NetworkPolicies
		}
	}
	return result
}

// InEndpointSlices implements forwarder.Source. Slices in other namespaces cannot be read here; the manager
// records what they may list.
func (s *Source) InEndpointSlices(ctx context.Context, podIPs []netip.Addr) (bool, error) {
	projected, err := s.projected(ctx, podIPs)
	if projected || err != nil {
		return projected, err
	}
	options := metav1.ListOptions{Limit: 500}
	for {
		page, err := s.slices.EndpointSlices(s.own.Namespace).List(ctx, options)
		if err != nil {
			return false, fmt.Errorf("listing EndpointSlices: %w", err)
		}
		for i := range page.Items {
			if sendsTo(&page.Items[i], podIPs) {
				return true, nil
			}
		}
		if page.Continue == "" {
			return false, nil
		}
		options.Continue = page.Continue
	}
}

// projected reports whether EndpointSlices of target Services may list one of the addresses as
// ready. Without a KubernetesOperator the installation is being uninstalled, and its slices go with
// it.
func (s *Source) projected(ctx context.Context, podIPs []netip.Addr) (bool, error) {
	operator := &v1alpha1.KubernetesOperator{}
	err := s.bindings.Get().Namespace(s.own.Namespace).Resource("kubernetesoperators").Name(s.own.Release).
		Do(ctx).Into(operator)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading KubernetesOperator %s: %w", s.own.Release, err)
	}
	return slices.ContainsFunc(operator.Status.ProjectedForwarders, func(address string) bool {
		ip, err := netip.ParseAddr(address)
		return err == nil && slices.Contains(podIPs, ip)
	}), nil
}

// NamespaceDeleted implements forwarder.Source.
func (s *Source) NamespaceDeleted(ctx context.Context) (bool, error) {
	namespace, err := s.namespaces.Namespaces().Get(ctx, s.own.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading namespace %s: %w", s.own.Namespace, err)
	}
	return !namespace.DeletionTimestamp.IsZero(), nil
}

// sendsTo reports whether the slice lists one of the addresses as ready. An absent condition means
// ready, as the API defines it.
func sendsTo(slice *discoveryv1.EndpointSlice, podIPs []netip.Addr) bool {
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
			continue
		}
		for _, address := range endpoint.Addresses {
			if ip, err := netip.ParseAddr(address); err == nil && slices.Contains(podIPs, ip) {
				return true
			}
		}
	}
	return false
}
