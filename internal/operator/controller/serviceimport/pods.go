// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// A pod of a headless Service has a Service of its own in each importing namespace, whose ClusterIP
// stands for the pod's address, which may be another pod's there. Such a Service has one of the
// names clusterset-pod-0 to clusterset-pod-63. The slices with the label LabelPods, which DNS reads, list
// the ClusterIPs; they belong to no Service, so that no proxy uses them, and an endpoint refers to
// the Service whose address it has. The chart's admission policies have a binding for each of the
// names, which compares the address with the Service itself: an attacker with the manager's token
// can lead DNS to no other address (CVE-2021-25740).
const (
	maxPods       = 64
	podService    = "clusterset-pod-"
	labelPod      = "bindings.fairlead.dev/pod"            // the pod's hostname, on its Service
	labelPods     = "bindings.fairlead.dev/pods"           // "true" on slices that list pods
	labelPodsName = "pods.bindings.fairlead.dev/"          // with the name of each Service that such a slice lists
	labelImport   = "bindings.fairlead.dev/service-import" // on slices with the forwarders, for a pod's Service
)

// importedPod is a pod of a headless Service that a cluster exports.
type importedPod struct {
	account.ServiceExportPod
	cluster string
	service *corev1.Service
	ports   []discoveryv1.EndpointPort // ports are the forwarders'.
	online  bool
}

// podCount is how many pods of a headless import there are, and how many have no Service, as no
// name is free; and the families of their addresses.
type podCount struct {
	imported, leftOut int
	families          []corev1.IPFamily
}

// ensurePods makes what each pod of a headless import needs, and deletes what belongs to others.
func (r *Reconciler) ensurePods(
	ctx context.Context, i *clusterset.Import, owner *mcsv1beta1.ServiceImport,
) (n podCount, found *status.Problem) {
	key := types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
	addresses, release, ok := r.Addresses.Acquire(key.String())
	if !ok {
		return n, status.Pending()
	}
	defer release()
	live, err := r.podSlices(ctx, key)
	if err != nil {
		return n, problemOf(err)
	}
	services, err := r.podServices(ctx, key.Namespace)
	if err != nil {
		return n, problemOf(err)
	}
	keep := map[string]bool{}
	for at := range i.Exports {
		e := &i.Exports[at]
		pods, leftOut, problem, err := r.exportedPods(ctx, i, e, owner, &services, live)
		if err != nil {
			return n, problemOf(err)
		}
		n.imported, n.leftOut, found = n.imported+len(pods), n.leftOut+leftOut, first(found, problem)
		for _, pod := range pods {
			keep[pod.service.Name] = true
			n.families = pod.service.Spec.IPFamilies
			for _, s := range r.forwarderSlices(key.Name, pod, addresses) {
				keep[s.Name] = true
				found = first(found, r.ensureSlice(ctx, key, s, live))
			}
		}
		for _, s := range r.listingSlices(i, e, owner, pods) {
			keep[s.Name] = true
			forgetLabels(live, s)
			found = first(found, r.ensureSlice(ctx, key, s, live))
		}
	}
	return n, first(found, r.removePods(ctx, key, keep))
}

// forgetLabels removes from what is known of a slice the names of Services that it no longer lists,
// so that an update removes them: it leaves other labels.
func forgetLabels(live []discoveryv1.EndpointSlice, desired *discoveryv1.EndpointSlice) {
	for n := range live {
		if live[n].Name == desired.Name {
			maps.DeleteFunc(live[n].Labels, func(name, _ string) bool {
				_, isDesired := desired.Labels[name]
				return !isDesired && (strings.HasPrefix(name, labelPodsName) || name == discoveryv1.LabelServiceName)
			})
		}
	}
}

// exportedPods returns the pods of one export that have a Service, which it makes.
func (r *Reconciler) exportedPods(ctx context.Context, i *clusterset.Import, e *clusterset.Export,
	owner *mcsv1beta1.ServiceImport, services *[]corev1.Service, live []discoveryv1.EndpointSlice,
) (pods []importedPod, leftOut int, found *status.Problem, err error) {
	ports := slices.DeleteFunc(i.Ports(e.ClusterID), func(p account.ServiceExportPort) bool {
		return p.Protocol != string(corev1.ProtocolTCP)
	})
	if len(ports) == 0 {
		return nil, 0, nil, nil
	}
	host := account.ServiceExportURL(i.Name, i.Namespace, e.ClusterID).Host
	b, err := r.boundEndpoint(ctx, host)
	if err != nil {
		return nil, 0, nil, err
	}
	known, _, offline := r.Exports.Availability(host)
	for _, p := range e.Spec.Pods {
		if !account.ValidClusterID(p.Hostname) {
			continue // no label of DNS
		}
		pod := importedPod{ServiceExportPod: p, cluster: e.ClusterID, online: true}
		var full bool
		var problem *status.Problem
		if pod.service, full, problem = r.ensurePodService(ctx, owner, pod, ports, services); full {
			leftOut++
		}
		if found = first(found, problem); pod.service == nil {
			continue
		}
		bound := slices.Clone(ports)
		for n := range bound {
			bound[n].Port = account.PodPort(p.Hostname, bound[n].Port)
			u := account.EndpointURL{Scheme: "tcp", Host: host, Port: int(bound[n].Port)}
			pod.online = pod.online && (!known || !slices.Contains(offline, u.String()))
		}
		if b != nil {
			pod.ports = endpointPorts(bound, b, portsOf(live, discoveryv1.LabelServiceName, pod.service.Name))
		}
		pods = append(pods, pod)
	}
	return pods, leftOut, found, nil
}

// ensurePodService makes the Service of a pod. full means that all names are in use. services are
// those of all pods in the namespace.
func (r *Reconciler) ensurePodService(ctx context.Context, owner *mcsv1beta1.ServiceImport, pod importedPod,
	ports []account.ServiceExportPort, services *[]corev1.Service,
) (live *corev1.Service, full bool, found *status.Problem) {
	desired := podServiceOf(owner, pod, ports)
	isThis := func(s corev1.Service) bool {
		return r.Anchors.Installation.Owns(&s) && s.Labels[mcsv1beta1.LabelServiceName] == owner.Name &&
			s.Labels[labelPod] == pod.Hostname && s.Labels[mcsv1beta1.LabelSourceCluster] == pod.cluster &&
			slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	}
	at := slices.IndexFunc(*services, isThis)
	if at >= 0 {
		live = &(*services)[at]
		desired.Name = live.Name
		r.Anchors.Installation.Mark(desired)
		switch {
		case live.DeletionTimestamp != nil:
			return nil, false, status.Pending()
		case live.Spec.ClusterIP == corev1.ClusterIPNone || live.Spec.ClusterIP == "":
			return nil, false, r.recreateDerived(ctx, live)
		}
		return live, false, r.updateDerived(ctx, live, desired)
	}
	for n := range maxPods {
		name := fmt.Sprint(podService, n)
		if slices.ContainsFunc(*services, func(s corev1.Service) bool { return s.Name == name }) {
			continue
		}
		desired.Name = name
		r.Anchors.Installation.Mark(desired)
		made, isNew, err := r.objects.CreateService(ctx, desired)
		if err != nil {
			return nil, false, problemOf(fmt.Errorf("creating Service %s/%s: %w", owner.Namespace, name, err))
		}
		*services = append(*services, *made)
		if isNew || isThis(*made) {
			return made, false, nil
		} // else another pod's, which the cache has not seen yet, or another owner's
	}
	return nil, true, nil
}

// forwarderSlices returns the slices of a pod's Service, which lead to the forwarders.
func (r *Reconciler) forwarderSlices(
	name string, pod importedPod, addresses map[discoveryv1.AddressType][]discoveryv1.Endpoint,
) (all []*discoveryv1.EndpointSlice) {
	for _, ipFamily := range pod.service.Spec.IPFamilies {
		family := discoveryv1.AddressType(ipFamily)
		forwarders, has := addresses[family]
		if !has || len(pod.ports) == 0 {
			continue
		}
		s := endpointSlice(r.Anchors.Installation, name, pod.service, source{ports: pod.ports}, family, forwarders)
		s.Name = pod.service.Name + "-" + strings.ToLower(string(family))
		delete(s.Labels, mcsv1beta1.LabelServiceName) // DNS does not list the forwarders
		delete(s.Labels, mcsv1beta1.LabelSourceCluster)
		s.Labels[labelImport] = name
		r.Anchors.Installation.Mark(s)
		all = append(all, s)
	}
	return all
}

// listingSlices returns the slices of an export that DNS reads, one for each family.
func (r *Reconciler) listingSlices(
	i *clusterset.Import, e *clusterset.Export, owner *mcsv1beta1.ServiceImport, pods []importedPod,
) (all []*discoveryv1.EndpointSlice) {
	var ports []discoveryv1.EndpointPort
	for _, p := range i.Ports(e.ClusterID) {
		if p.Protocol == string(corev1.ProtocolTCP) {
			ports = append(ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.Port),
				Protocol: new(corev1.ProtocolTCP), AppProtocol: orNil(p.AppProtocol)})
		}
	}
	prefix := DerivedName(client.ObjectKeyFromObject(owner)) + "-pods-" + e.ClusterID + "-"
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: prefix + strings.ToLower(string(family)),
				Labels: map[string]string{discoveryv1.LabelManagedBy: installation.SliceManager, labelPods: "true",
					mcsv1beta1.LabelServiceName: owner.Name, mcsv1beta1.LabelSourceCluster: e.ClusterID},
				OwnerReferences: []metav1.OwnerReference{importReference(owner)}},
			AddressType: family, Ports: ports}
		for _, pod := range pods {
			at := slices.Index(pod.service.Spec.IPFamilies, corev1.IPFamily(family))
			if at < 0 || at >= len(pod.service.Spec.ClusterIPs) {
				continue
			}
			s.Labels[labelPodsName+pod.service.Name] = ""
			ready := pod.Ready && pod.online && len(pod.ports) > 0
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Hostname: new(pod.Hostname),
				Addresses:  pod.service.Spec.ClusterIPs[at : at+1],
				Conditions: discoveryv1.EndpointConditions{Ready: new(ready)},
				TargetRef: &corev1.ObjectReference{Kind: "Service", Namespace: owner.Namespace,
					Name: pod.service.Name}})
		}
		if len(s.Endpoints) > 0 {
			r.Anchors.Installation.Mark(s)
			all = append(all, s)
		}
	}
	return all
}

// removePods deletes slices and Services of pods of an import, as far as they are ours, except those
// to keep: the slices that DNS reads first.
func (r *Reconciler) removePods(ctx context.Context, key types.NamespacedName, keep map[string]bool) *status.Problem {
	live, err := r.podSlices(ctx, key)
	found := problemOf(err)
	slices.SortStableFunc(live, func(a, b discoveryv1.EndpointSlice) int {
		return cmp.Compare(b.Labels[labelPods], a.Labels[labelPods])
	})
	for n := range live {
		if !keep[live[n].Name] {
			found = first(found, problemOf(r.objects.DeleteSlice(ctx, key.String(), &live[n])))
		}
	}
	if found != nil {
		return found
	}
	services, err := r.podServices(ctx, key.Namespace)
	found = problemOf(err)
	for n := range services {
		if s := &services[n]; s.Labels[mcsv1beta1.LabelServiceName] == key.Name && !keep[s.Name] &&
			r.Anchors.Installation.Owns(s) && s.DeletionTimestamp == nil {
			found = first(found, problemOf(owned.Delete(ctx, r.Client, s)))
		}
	}
	return found
}

// podServices returns the Services of imported pods in a namespace, from the cache.
func (r *Reconciler) podServices(ctx context.Context, namespace string) ([]corev1.Service, error) {
	var list corev1.ServiceList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{labelPod}); err != nil {
		return nil, fmt.Errorf("listing Services of namespace %s: %w", namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(s corev1.Service) bool { return !r.Anchors.Installation.Owns(&s) }), nil
}

// podSlices returns our slices of the pods of an import, from the cache: those that list the pods,
// and those that lead to the forwarders.
func (r *Reconciler) podSlices(ctx context.Context, key types.NamespacedName) ([]discoveryv1.EndpointSlice, error) {
	var all []discoveryv1.EndpointSlice
	for _, selector := range []client.MatchingLabels{
		{mcsv1beta1.LabelServiceName: key.Name, labelPods: "true"}, {labelImport: key.Name}} {
		var list discoveryv1.EndpointSliceList
		if err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace), selector); err != nil {
			return nil, fmt.Errorf("listing EndpointSlices of ServiceImport %s: %w", key, err)
		}
		all = append(all, list.Items...)
	}
	foreign := func(s discoveryv1.EndpointSlice) bool { return !r.Anchors.Installation.Owns(&s) }
	return slices.DeleteFunc(all, foreign), nil
}

// podServiceOf returns the desired Service of a pod, without a name and marks. The ServiceImport owns it.
func podServiceOf(
	owner *mcsv1beta1.ServiceImport, pod importedPod, ports []account.ServiceExportPort,
) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace,
		Labels: map[string]string{mcsv1beta1.LabelServiceName: owner.Name, labelPod: pod.Hostname,
			mcsv1beta1.LabelSourceCluster: pod.cluster},
		OwnerReferences: []metav1.OwnerReference{importReference(owner)}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			IPFamilyPolicy:        new(corev1.IPFamilyPolicyPreferDualStack)}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, servicePort(p))
	}
	return s
}
