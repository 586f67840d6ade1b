// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// ensureSlices makes the EndpointSlices of a ServiceImport: one for each cluster that serves ports
// and each family of addresses. It deletes others.
func (r *Reconciler) ensureSlices(ctx context.Context, i *clusterset.Import, derived *corev1.Service) *status.Problem {
	key := types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
	addresses, release, ok := r.Addresses.Acquire(key.String())
	if !ok {
		return status.Pending()
	}
	defer release()
	live, err := r.listSlices(ctx, key)
	if err != nil {
		return problemOf(err)
	}
	sources, found := r.sources(ctx, i, live)
	if found != nil {
		return found
	}
	keep := map[string]bool{}
	for _, from := range sources {
		for _, family := range families(derived) {
			forwarders, has := addresses[family]
			if !has || len(from.ports) == 0 {
				continue
			}
			desired := endpointSlice(r.Anchors.Installation, i.Name, derived, from, family, forwarders)
			keep[desired.Name] = true
			found = first(found, r.ensureSlice(ctx, key, desired, live))
		}
	}
	return first(found, r.removeSlices(ctx, key, keep))
}

// sources returns what each cluster contributes.
func (r *Reconciler) sources(
	ctx context.Context, i *clusterset.Import, live []discoveryv1.EndpointSlice,
) ([]source, *status.Problem) {
	var all []source
	for _, e := range i.Exports {
		ports := i.Ports(e.ClusterID)
		host := account.ServiceExportURL(i.Name, i.Namespace, e.ClusterID).Host
		b := &v1alpha1.BoundEndpoint{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Anchors.Installation.Namespace, Name: host}, b)
		if client.IgnoreNotFound(err) != nil {
			return nil, problemOf(fmt.Errorf("reading BoundEndpoint %s: %w", host, err))
		}
		from := source{cluster: e.ClusterID}
		if err == nil && r.Anchors.Installation.Owns(b) {
			from.ports = endpointPorts(ports, b, livePorts(live, e.ClusterID))
		}
		known, endpoints, offline := r.Exports.Availability(host)
		from.available = e.Spec.Ready && available(host, ports, known, endpoints, offline)
		all = append(all, from)
	}
	setStandby(all)
	return all, nil
}

// livePorts returns the ports of a cluster's slices.
func livePorts(live []discoveryv1.EndpointSlice, cluster string) []discoveryv1.EndpointPort {
	for i := range live {
		if live[i].Labels[mcsv1beta1.LabelSourceCluster] == cluster {
			return live[i].Ports
		}
	}
	return nil
}

// listSlices returns our slices of a ServiceImport, from the cache.
func (r *Reconciler) listSlices(ctx context.Context, key types.NamespacedName) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: DerivedName(key)}); err != nil {
		return nil, fmt.Errorf("listing EndpointSlices of ServiceImport %s: %w", key, err)
	}
	return slices.DeleteFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return !r.Anchors.Installation.Owns(&s) || s.Labels[mcsv1beta1.LabelSourceCluster] == ""
	}), nil
}

// ensureSlice makes one slice as desired. live are those that the cache has.
func (r *Reconciler) ensureSlice(
	ctx context.Context, key types.NamespacedName, desired *discoveryv1.EndpointSlice,
	live []discoveryv1.EndpointSlice,
) *status.Problem {
	var current *discoveryv1.EndpointSlice
	if i := slices.IndexFunc(live, func(s discoveryv1.EndpointSlice) bool { return s.Name == desired.Name }); i >= 0 {
		current = &live[i]
	}
	err := r.objects.EnsureSlice(ctx, key.String(), current, desired)
	if errors.Is(err, owned.ErrForeign) {
		return conflict("EndpointSlice", client.ObjectKeyFromObject(desired))
	}
	return problemOf(err)
}

// removeSlices deletes the slices of a ServiceImport except those to keep.
func (r *Reconciler) removeSlices(ctx context.Context, key types.NamespacedName, keep map[string]bool) *status.Problem {
	live, err := r.listSlices(ctx, key)
	found := problemOf(err)
	for i := range live {
		if s := &live[i]; !keep[s.Name] {
			found = first(found, problemOf(owned.Delete(ctx, r.Client, s)))
		}
	}
	return found
}

// refresh keeps the addresses of existing slices current while nothing else is known: a forwarder
// that stops waits until no slice lists it.
func (r *Reconciler) refresh(ctx context.Context, key types.NamespacedName) *status.Problem {
	live, err := r.listSlices(ctx, key)
	if err != nil {
		return problemOf(err)
	}
	if len(live) == 0 {
		return nil
	}
	addresses, release, ok := r.Addresses.Acquire(key.String())
	if !ok {
		return status.Pending()
	}
	defer release()
	var found *status.Problem
	for i := range live {
		s := &live[i]
		desired := s.DeepCopy()
		desired.Endpoints = endpoints(addresses[s.AddressType], s.Annotations[installation.AnnotationStandby] != "")
		found = first(found, problemOf(r.objects.EnsureSlice(ctx, key.String(), s, desired)))
	}
	return found
}
