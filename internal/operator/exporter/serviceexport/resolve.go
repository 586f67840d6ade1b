// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// resolution is what a ServiceExport and its Service mean.
type resolution struct {
	unknown bool            // unknown is set while the cluster's id is not known.
	keep    bool            // keep is set when it is not certain that the Service is gone: records stay.
	invalid *status.Problem // invalid makes Valid False: there is no Service that can be exported.
	refused *status.Problem // refused makes Ready False: the export cannot be named.
	// service is what the record says, without Ready; nil if invalid.
	service *account.ServiceExport
	id      string // id is the cluster's.
	ready   bool   // ready is set when a carried port has a ready endpoint.
	// dialing is why no port of the Service can be dialed, although it has some; "" = they can.
	dialing string
	ports   map[int32]agent.Endpoint // to bind
	// podsLeftOut is how many pods of a headless Service are not exported.
	podsLeftOut int
}

// resolve reads the Service of an export.
func (r *Reconciler) resolve(ctx context.Context, o *v1beta1.ServiceExport) (found resolution, err error) {
	name := client.ObjectKeyFromObject(o)
	var service corev1.Service
	err = r.Client.Get(ctx, name, &service)
	switch {
	case apierrors.IsNotFound(err):
		return r.withoutService(ctx, name), nil
	case err != nil:
		return found, fmt.Errorf("reading Service %s: %w", name, err)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		found.invalid = status.Problemf(v1beta1.ServiceExportReasonInvalidServiceType,
			"Service %s is of type ExternalName and has no endpoints in this cluster: export a Service with endpoints",
			name)
		return found, nil
	}
	found.service = exported(o, &service)
	id, why := r.ids.get()
	switch {
	case id == "" && why == "":
		found.unknown = true
		return found, nil
	case id == "":
		found.refused = status.Problemf(v1beta1.ServiceExportReasonFailed, "%s", why)
		return found, nil
	}
	found.id = id
	url := account.ServiceExportURL(name.Name, name.Namespace, id)
	if _, err := account.ParseBindingURL(account.BindingClusterset, url.String()); err != nil {
		found.refused = status.Problemf(v1beta1.ServiceExportReasonFailed, "%s", account.FirstRule(err))
		return found, nil
	}
	err = r.resolvePorts(ctx, o, &service, &found)
	if value, isSealed := o.Annotations[AnnotationSealed]; isSealed {
		r.seal(value, &found)
	}
	return found, err
}

// withoutService returns what is to be done for an export without a Service. While it is exported,
// the API server itself must say that there is none.
func (r *Reconciler) withoutService(ctx context.Context, name types.NamespacedName) (found resolution) {
	if r.Ports.Serves(name) || len(r.own(name)) > 0 {
		if !owned.IsGone(ctx, r.Live, corev1.SchemeGroupVersion.WithKind("Service"), name) {
			found.keep = true
			return found
		}
	}
	found.invalid = status.Problemf(v1beta1.ServiceExportReasonNoService, "there is no Service %s", name)
	return found
}

// isTCP reports whether connections of a port of the protocol are carried.
func isTCP(protocol corev1.Protocol) bool { return protocol == corev1.ProtocolTCP || protocol == "" }

// isHeadless reports whether the pods of a Service are exported one by one.
func isHeadless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// carriedPorts returns what is bound for a Service: each TCP port, or each of each pod.
type carriedPorts struct {
	refs map[int32]upstream.Ref     // refs are by the port of the URL.
	pods []account.ServiceExportPod // pods are those of a headless Service that are exported.
	// leftOut is how many pods are not: beyond the limit, or with the PodPort of another one.
	leftOut int
	dialing string // dialing is why pods are not dialed; "" = they are.
}

func (r *Reconciler) carriedPorts(ctx context.Context, service *corev1.Service) (c carriedPorts, err error) {
	name := client.ObjectKeyFromObject(service)
	c.refs = map[int32]upstream.Ref{}
	var ports []int32
	for _, p := range service.Spec.Ports {
		if isTCP(p.Protocol) && service.Spec.Type != corev1.ServiceTypeExternalName {
			ports = append(ports, p.Port)
		}
	}
	if !isHeadless(service) {
		for _, port := range ports {
			c.refs[port] = upstream.Ref{Scheme: "tcp", Service: name, Port: port}
		}
		return c, nil
	}
	pods, unused, problem, err := r.Upstreams.Pods(ctx, r.Client, service)
	if c.dialing = unused; problem != nil {
		c.dialing = problem.Message
	}
	for _, pod := range pods {
		taken := slices.ContainsFunc(ports, func(p int32) bool {
			_, taken := c.refs[account.PodPort(pod.Hostname, p)]
			return taken
		})
		if taken || len(c.pods) == account.MaxExportPods || len(c.refs)+len(ports) > account.MaxExportPorts {
			c.leftOut++
			continue
		}
		c.pods = append(c.pods, pod)
		for _, port := range ports {
			c.refs[account.PodPort(pod.Hostname, port)] = upstream.Ref{Scheme: "tcp", Service: name, Port: port,
				Pod: pod.Hostname}
		}
	}
	return c, err
}

// resolvePorts adds the endpoints of the ports that are carried.
func (r *Reconciler) resolvePorts(
	ctx context.Context, o *v1beta1.ServiceExport, service *corev1.Service, found *resolution,
) error {
	name := client.ObjectKeyFromObject(o)
	carried, err := r.carriedPorts(ctx, service)
	if err != nil {
		return err
	}
	found.service.Pods, found.podsLeftOut, found.dialing = carried.pods, carried.leftOut, carried.dialing
	found.ports = map[int32]agent.Endpoint{}
	for port, ref := range carried.refs {
		addresses, why, err := r.Upstreams.Lookup(ctx, r.Client, ref)
		switch {
		case err != nil:
			return fmt.Errorf("looking for the endpoints of Service %s: %w", name, err)
		case why != nil:
			found.dialing = why.Message
		case len(addresses.Ready) > 0:
			found.ready = true
		case addresses.Unused != "":
			found.dialing = addresses.Unused
		}
		found.ports[port] = agent.Endpoint{
			URL:     account.ExportedPortURL(name.Name, name.Namespace, found.id, int(port)),
			Binding: account.BindingClusterset,
			Name:    account.ObjectName(name.Namespace, name.Name),
			Owner: &tunnel.Owner{Kind: account.KindServiceExport, Namespace: name.Namespace, Name: name.Name,
				UID: string(o.UID)},
			Dial:     r.Dial,
			Upstream: agent.Upstream{Scheme: ref.Scheme, Host: ref.Host(), Port: int(ref.Port)},
		}
	}
	return nil
}

// seal makes the ports sealed as the value of AnnotationSealed asks, or the export refused.
func (r *Reconciler) seal(value string, found *resolution) {
	if value != "true" {
		found.refused = status.Problemf(v1beta1.ServiceExportReasonFailed, "the annotation %s is %q: give \"true\", "+
			"or leave it out", AnnotationSealed, account.Shorten(value))
	}
	for _, port := range slices.Sorted(maps.Keys(found.ports)) {
		if e := found.ports[port]; found.refused == nil {
			e.Seal, found.refused = r.Ports.Seal(e.URL)
			found.ports[port] = e
		}
	}
}

// exported returns what is exported of a Service.
func exported(o *v1beta1.ServiceExport, s *corev1.Service) *account.ServiceExport {
	e := &account.ServiceExport{
		Type: account.ExportClusterSetIP, SessionAffinity: string(corev1.ServiceAffinityNone),
		TrafficDistribution: ptr.Deref(s.Spec.TrafficDistribution, ""),
		Labels:              o.Spec.ExportedLabels, Annotations: o.Spec.ExportedAnnotations,
	}
	if isHeadless(s) {
		e.Type = account.ExportHeadless
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		e.SessionAffinity = string(s.Spec.SessionAffinity)
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
			e.SessionAffinitySeconds = c.ClientIP.TimeoutSeconds
		}
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		e.InternalTrafficPolicy = string(*p)
	}
	for _, family := range s.Spec.IPFamilies {
		e.IPFamilies = append(e.IPFamilies, string(family))
	}
	for _, p := range s.Spec.Ports {
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		e.Ports = append(e.Ports, account.ServiceExportPort{Name: p.Name, Protocol: string(protocol), Port: p.Port,
			AppProtocol: ptr.Deref(p.AppProtocol, "")})
	}
	return e
}
