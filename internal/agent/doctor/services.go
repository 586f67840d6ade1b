// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// target is the Service that pods call.
type target struct {
	url     account.EndpointURL
	service service
	found   bool
	err     *refusal
}

// services checks the Services of the hostname, and learns where the forwarders are.
type services struct {
	*cluster
	url    account.EndpointURL
	target *target
	op     *operatorInstallation

	upstream *service
	// the namespace of the upstream Service, and so of the forwarders; empty while it is not known
	forwarderNamespace string
	targetPort         int // where the forwarders listen; 0 while it is not known
}

// isFairleads reports whether an operator made the target Service for this hostname.
func (t *target) isFairleads() bool {
	return t.found && t.service.Metadata.isMarked() &&
		t.service.Metadata.Annotations[annotationHostname] == t.url.Host
}

// operatorNamespace returns the operator's namespace according to the target Service, or
// "".
func (t *target) operatorNamespace() string {
	if !t.isFairleads() {
		return ""
	}
	if _, home, _ := parseExternalName(t.service.Spec.ExternalName); home != "" {
		return home
	}
	home, _, _ := strings.Cut(t.service.Metadata.Annotations[annotationInstallation], "/")
	return home
}

// isSliced reports whether the target Service has EndpointSlices with the forwarders' addresses,
// and no upstream Service.
func (sv *services) isSliced() bool {
	if !sv.target.isFairleads() {
		return sv.op.bound != nil && sv.op.bound.Status.Projection == projectionSlices
	}
	return sv.target.service.Spec.Type == "ClusterIP" && len(sv.target.service.Spec.Selector) == 0 &&
		(sv.op.bound == nil || sv.op.bound.Status.Projection == projectionSlices)
}

// checkTarget checks that the Service that pods call exists and is Fairlead's.
func (sv *services) checkTarget(context.Context) path.Hop {
	place := sv.url.Namespace() + "/" + sv.url.Service()
	switch {
	case sv.target.err != nil:
		return refusedHop("Service "+place, sv.target.err)
	case !sv.target.found:
		return sv.noTarget(place)
	}
	m := sv.target.service.Metadata
	evidence := fmt.Sprintf("Service %s: type %s, externalName %q, ports %s", place, sv.target.service.Spec.Type,
		sv.target.service.Spec.ExternalName, sv.target.service.portList())
	switch {
	case !sv.target.isFairleads():
		h := path.Brokenf(
			"delete or rename it, or give the endpoint another URL; Fairlead takes the name over once it has been "+
				"free for a minute",
			"Service %s is not Fairlead's, which leaves it alone: it belongs to %s", place, ownerOf(m)).With(evidence)
		return h.With(sv.op.boundCondition("ServicesReady")...)
	case m.DeletionTimestamp != nil:
		return path.Brokenf("wait a moment, and look again; the operator makes it anew", path.ServiceTerminating,
			place).
			With(evidence)
	case sv.isSliced():
		h := path.OKf("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).With(evidence)
		if key := podsOnly(m.Annotations); key != "" {
			h.Status = path.Warning
			h.Detail += fmt.Sprintf(
				"; the load balancer of its annotation %s finds no target in slices without pods", key)
			h.Fix = "let it send to a gateway in the cluster, which routes to the Service; see docs/run/projection.md"
		}
		return h
	case sv.target.service.Spec.Type != "ExternalName":
		return path.Brokenf(sv.op.managerRemedy(), "Service %s is Fairlead's, but its type was changed to %s", place,
			sv.target.service.Spec.Type).With(evidence)
	}
	if _, home, _ := parseExternalName(sv.target.service.Spec.ExternalName); home == "" {
		return path.Brokenf(sv.op.managerRemedy(),
			"Service %s is Fairlead's, but leads to %q, which is none of its names", place,
			sv.target.service.Spec.ExternalName).With(evidence)
	}
	return path.OKf("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).With(evidence)
}

// podsOnly returns the annotation of a controller whose load balancer sends to pods alone, which it
// finds by the target references of EndpointSlices: those of Fairlead have none. "" for no such
// annotation. GKE gives cloud.google.com/neg to every Service; the status is of those with a group.
func podsOnly(annotations map[string]string) string {
	for _, a := range []struct{ key, value string }{
		{"cloud.google.com/neg-status", ""}, {"cloud.google.com/neg", "exposed_ports"},
		{"alb.ingress.kubernetes.io/target-type", "ip"},
		{"service.beta.kubernetes.io/aws-load-balancer-nlb-target-type", "ip"},
	} {
		if value, ok := annotations[a.key]; ok && strings.Contains(value, a.value) {
			return a.key
		}
	}
	return ""
}

// noTarget explains why the target Service does not exist.
func (sv *services) noTarget(place string) path.Hop {
	missing := fmt.Sprintf(path.NoService, place)
	if sv.op.bound == nil || sv.op.bound.Spec.State == "Released" {
		h := path.Brokenf("", "%s", missing)
		if sv.op.boundErr != nil {
			h.Fix = "ask a user with access: kubectl describe bep " + sv.url.Host
			return h
		}
		return h.AsSymptom()
	}
	c := sv.op.bound.Status.Conditions.Get("ServicesReady")
	if c.Status != "False" {
		return path.Brokenf(sv.op.managerRemedy(), "%s, although its BoundEndpoint does", missing).
			With(sv.op.boundCondition("ServicesReady")...)
	}
	return path.Brokenf(path.Remedy("BoundEndpoint", c.Reason), "%s: %s (%s)", missing, c.Message, c.Reason).
		With(sv.op.boundCondition("ServicesReady")...)
}

// ownerOf describes the owner of a Service that no operator made for this hostname.
func ownerOf(m meta) string {
	by := m.Annotations[annotationInstallation]
	switch {
	case m.isMarked() && m.Annotations[annotationHostname] != "":
		return "hostname " + m.Annotations[annotationHostname] + " of the Fairlead installation " + by
	case m.Labels[labelInstallation] != "" && m.Annotations[annotationPlace] != "":
		return "a copy of Fairlead's Service " + m.Annotations[annotationPlace]
	case m.Annotations["meta.helm.sh/release-name"] != "":
		return "the Helm release " + m.Annotations["meta.helm.sh/release-namespace"] + "/" +
			m.Annotations["meta.helm.sh/release-name"]
	case len(m.OwnerReferences) > 0:
		return m.OwnerReferences[0].Kind + " " + m.OwnerReferences[0].Name
	case m.Labels["app.kubernetes.io/managed-by"] != "" && m.Labels[labelInstallation] == "":
		return m.Labels["app.kubernetes.io/managed-by"]
	}
	return "an unknown owner"
}

// parseExternalName splits <service>.<namespace>.svc.<cluster domain>; all parts are empty when it
// is something else.
func parseExternalName(name string) (service, namespace, domain string) {
	parts := strings.SplitN(strings.TrimSuffix(name, "."), ".", 4)
	if len(parts) != 4 || parts[2] != "svc" {
		return "", "", ""
	}
	return parts[0], parts[1], parts[3]
}

// checkUpstreamService follows the target Service to the ClusterIP Service beside the forwarders.
func (sv *services) checkUpstreamService(ctx context.Context) path.Hop {
	name := sv.locateUpstream()
	if sv.forwarderNamespace == "" {
		return path.Unknownf("neither the Service nor a BoundEndpoint could be read, so its name is not known")
	}
	switch {
	case sv.isSliced() && sv.target.isFairleads():
		return sv.checkPort(&sv.target.service) // it is in the place of the upstream Service
	case sv.isSliced():
		return path.Brokenf("", "there is no Service %s", sv.url.Host).AsSymptom()
	}
	place := sv.forwarderNamespace + "/" + name
	missing := path.Brokenf(sv.op.managerRemedy(), "%s leads to Service %s, which does not exist", sv.url.Host, place)
	if len(sv.op.operators) == 0 && sv.op.operatorsErr == nil {
		missing = missing.AsSymptom()
		missing.Fix = ""
	}
	s, bad := lookUp[service](ctx, sv.cluster, "Service", place, missing)
	switch {
	case bad != nil:
		return *bad
	case !s.Metadata.isMarked():
		return path.Brokenf("delete it, or rename it", "Service %s is not Fairlead's: it belongs to %s", place,
			ownerOf(s.Metadata))
	}
	return sv.checkPort(s)
}

// checkPort checks that a Service with a ClusterIP has the port, and makes it the upstream Service.
func (sv *services) checkPort(s *service) path.Hop {
	sv.upstream = s
	place := s.Metadata.namespacedName()
	p := s.port(sv.url.Port)
	if p == nil {
		h := path.Brokenf("", "Service %s has no port %d; it has %s", place, sv.url.Port, s.portList())
		if sv.op.boundPort() > 0 {
			h.Fix = sv.op.managerRemedy()
			return h
		}
		return h.AsSymptom()
	}
	sv.targetPort = p.target()
	return path.OKf("%s, %s, port %d to the forwarders' port %d", place, s.Spec.ClusterIP, p.Port, sv.targetPort).
		With(fmt.Sprintf("selector %v, ClusterIPs %v", s.Spec.Selector, s.Spec.ClusterIPs))
}

// locateUpstream returns the name of the upstream Service and sets its namespace and target port,
// from the target Service, else from the BoundEndpoint.
func (sv *services) locateUpstream() string {
	name := ""
	if sv.op.bound != nil {
		name, sv.forwarderNamespace = sv.op.bound.Spec.ProjectionID, sv.op.bound.Metadata.Namespace
		if target, _, found := strings.Cut(sv.op.bound.Status.Target, "."); found {
			name = target
		}
		sv.targetPort = sv.op.boundPort()
	}
	switch {
	case sv.isSliced() && sv.target.isFairleads():
		name, sv.forwarderNamespace = "", sv.target.operatorNamespace()
	case sv.target.isFairleads():
		name, sv.forwarderNamespace, _ = parseExternalName(sv.target.service.Spec.ExternalName)
	}
	return name
}

// checkCluster asks for the target Service, and so learns whether the cluster answers at all.
func (sv *services) checkCluster(ctx context.Context) path.Hop {
	name, ns := sv.url.Service(), sv.url.Namespace()
	sv.target.found, sv.target.err = sv.get(ctx, &sv.target.service, "services", name, "--namespace", ns)
	if r := sv.target.err; r != nil && r.kind == other {
		return path.Brokenf("see that this works:\n"+sv.command("get services --namespace %s", ns), "%s: %s",
			sv.which, r.message)
	}
	h := sv.answered(sv.target.err, "name the cluster with --context and --kubeconfig, and see that this works:",
		sv.command("get namespace %s", ns))
	if h.Status == path.Broken {
		return h
	}
	sv.op.find(ctx)
	return h
}

// checkNamespace checks the namespace that the URL names.
func (sv *services) checkNamespace(ctx context.Context) path.Hop {
	return sv.cluster.checkNamespace(ctx, sv.url.Namespace(), "Service", sv.target.found,
		path.Brokenf("create it, and the endpoint projects at that moment",
			"the second part of the hostname names namespace %s, which does not exist", sv.url.Namespace()),
		"wait until it is gone, create it anew, and the endpoint projects")
}
