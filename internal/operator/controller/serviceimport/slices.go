// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
		for _, ipFamily := range derived.Spec.IPFamilies {
			family := discoveryv1.AddressType(ipFamily)
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
		b, err := r.boundEndpoint(ctx, host)
		if err != nil {
			return nil, problemOf(err)
		}
		from := source{cluster: e.ClusterID}
		if b != nil {
			from.ports = endpointPorts(ports, b, portsOf(live, mcsv1beta1.LabelSourceCluster, e.ClusterID))
		}
		known, endpoints, offline := r.Exports.Availability(host)
		from.available = e.Spec.Ready && available(host, ports, known, endpoints, offline)
		all = append(all, from)
	}
	setStandby(all)
	return all, nil
}

// boundEndpoint returns our BoundEndpoint of an exported Service in one cluster; nil if there is
// none.
func (r *Reconciler) boundEndpoint(ctx context.Context, host string) (*v1alpha1.BoundEndpoint, error) {
	b := &v1alpha1.BoundEndpoint{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Anchors.Installation.Namespace, Name: host}, b)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading BoundEndpoint %s: %w", host, err)
	}
	if !r.Anchors.Installation.Owns(b) { // one that there is not lacks the marks, too
		b = nil
	}
	return b, nil
}

// portsOf returns the ports of the slices with the label.
func portsOf(live []discoveryv1.EndpointSlice, label, value string) []discoveryv1.EndpointPort {
	for i := range live {
		if live[i].Labels[label] == value {
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
	ofPods, podsErr := r.podSlices(ctx, key)
	if err := errors.Join(err, podsErr); err != nil {
		return problemOf(err)
	}
	live = append(live, slices.DeleteFunc(ofPods, func(s discoveryv1.EndpointSlice) bool {
		return s.Labels[labelPods] != "" // it lists pods
	})...)
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

// source is what a source cluster contributes to a ServiceImport.
type source struct {
	cluster string
	ports   []discoveryv1.EndpointPort
	// available reports whether the cluster can serve connections now.
	available bool
	// standby reports that it cannot, and that another cluster can.
	standby bool
}

// setStandby decides which sources are on standby.
func setStandby(sources []source) {
	available := slices.ContainsFunc(sources, func(s source) bool { return s.available && len(s.ports) > 0 })
	for i := range sources {
		sources[i].standby = available && !sources[i].available
	}
}

// endpointPorts returns the ports that forwarders listen for, with their target ports. A new port is
// among them once the forwarders have had time to listen. Until then, and while the BoundEndpoint
// changes, a port that the live slice has stays in it.
func endpointPorts(
	ports []account.ServiceExportPort, b *v1alpha1.BoundEndpoint, live []discoveryv1.EndpointPort,
) []discoveryv1.EndpointPort {
	var all []discoveryv1.EndpointPort
	for _, p := range ports {
		i := slices.IndexFunc(b.Spec.Ports, func(q v1alpha1.BoundPort) bool {
			return q.Port == p.Port && q.State != v1alpha1.StateReleased
		})
		if p.Protocol != string(corev1.ProtocolTCP) || i < 0 || b.Spec.State == v1alpha1.StateReleased {
			continue
		}
		port := discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(corev1.ProtocolTCP),
			Port: new(b.Spec.Ports[i].TargetPort), AppProtocol: orNil(p.AppProtocol)}
		listed := slices.ContainsFunc(live, func(q discoveryv1.EndpointPort) bool {
			return ptr.Deref(q.Name, "") == p.Name && ptr.Deref(q.Port, 0) == *port.Port
		})
		if listed || listening(b) {
			all = append(all, port)
		}
	}
	return all
}

// listening reports whether the forwarders listen for the present spec, or had the time to.
func listening(b *v1alpha1.BoundEndpoint) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	return b.Observed() && c != nil && c.ObservedGeneration == b.Generation
}

// available reports whether a carried port has an endpoint online, of those that the account has for
// the host. What is not known counts as available.
func available(host string, ports []account.ServiceExportPort, known bool, endpoints int, offline []string) bool {
	if !known {
		return true
	}
	return endpoints > 0 && slices.ContainsFunc(ports, func(p account.ServiceExportPort) bool {
		u := account.EndpointURL{Scheme: "tcp", Host: host, Port: int(p.Port)}
		return p.Protocol == string(corev1.ProtocolTCP) && !slices.Contains(offline, u.String())
	})
}

// endpointSlice returns the desired slice of a source cluster for the derived Service, which owns
// it.
func endpointSlice(
	own installation.Installation, name string, derived *corev1.Service, from source, family discoveryv1.AddressType,
	addresses []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: derived.Namespace,
			Name:      derived.Name + "-" + from.cluster + "-" + strings.ToLower(string(family)),
			Labels: map[string]string{discoveryv1.LabelServiceName: derived.Name,
				discoveryv1.LabelManagedBy:  installation.SliceManager,
				mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: from.cluster},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: derived.Name,
				UID: derived.UID, BlockOwnerDeletion: new(false)}},
		},
		AddressType: family, Endpoints: endpoints(addresses, from.standby), Ports: from.ports,
	}
	own.Mark(s)
	if from.standby {
		s.Annotations[installation.AnnotationStandby] = "true"
	}
	return s
}

// endpoints returns the forwarders as endpoints; on standby none is ready, nor serves while it
// terminates.
func endpoints(addresses []discoveryv1.Endpoint, standby bool) []discoveryv1.Endpoint {
	all := slices.Clone(addresses)
	for i := range all {
		if standby {
			all[i].Conditions.Ready, all[i].Conditions.Serving = new(false), new(false)
		}
	}
	return all
}
