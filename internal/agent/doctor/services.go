// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
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
func (sv *services) checkTarget(context.Context) Hop {
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
		h := broken(
			"delete or rename it, or give the endpoint another URL; Fairlead takes the name over once it has been "+
				"free for a minute",
			"Service %s is not Fairlead's, which leaves it alone: it belongs to %s", place, ownerOf(m)).with(evidence)
		return h.with(sv.op.boundCondition("ServicesReady")...)
	case m.DeletionTimestamp != nil:
		return broken("wait a moment, and look again; the operator makes it anew", "Service %s is being deleted",
			place).
			with(evidence)
	case sv.isSliced():
		return ok("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).with(evidence)
	case sv.target.service.Spec.Type != "ExternalName":
		return broken(sv.op.managerRemedy(), "Service %s is Fairlead's, but its type was changed to %s", place,
			sv.target.service.Spec.Type).with(evidence)
	}
	if _, home, _ := parseExternalName(sv.target.service.Spec.ExternalName); home == "" {
		return broken(sv.op.managerRemedy(), "Service %s is Fairlead's, but leads to %q, which is none of its names",
			place, sv.target.service.Spec.ExternalName).with(evidence)
	}
	return ok("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).with(evidence)
}

// noTarget explains why the target Service does not exist.
func (sv *services) noTarget(place string) Hop {
	missing := fmt.Sprintf("Service %s does not exist", place)
	if sv.op.bound == nil || sv.op.bound.Spec.State == "Released" {
		h := broken("", "%s", missing)
		if sv.op.boundErr != nil {
			h.Fix = "ask a user with access: kubectl describe bep " + sv.url.Host
			return h
		}
		return h.asSymptom()
	}
	c := sv.op.bound.Status.Conditions.get("ServicesReady")
	if c.Status != "False" {
		return broken(sv.op.managerRemedy(), "%s, although its BoundEndpoint does", missing).
			with(sv.op.boundCondition("ServicesReady")...)
	}
	return broken(remedyFor(c.Reason), "%s: %s (%s)", missing, c.Message, c.Reason).
		with(sv.op.boundCondition("ServicesReady")...)
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
func (sv *services) checkUpstreamService(ctx context.Context) Hop {
	name := sv.locateUpstream()
	if sv.forwarderNamespace == "" {
		return unknown("neither the Service nor a BoundEndpoint could be read, so its name is not known")
	}
	if sv.isSliced() {
		return sv.checkSliced()
	}
	place := sv.forwarderNamespace + "/" + name
	var s service
	found, err := sv.get(ctx, &s, "services", name, "--namespace", sv.forwarderNamespace)
	switch {
	case err != nil:
		return refusedHop("Service "+place, err)
	case !found && len(sv.op.operators) == 0 && sv.op.operatorsErr == nil:
		return broken("", "%s leads to Service %s, which does not exist", sv.url.Host, place).asSymptom()
	case !found:
		return broken(sv.op.managerRemedy(), "%s leads to Service %s, which does not exist", sv.url.Host, place)
	case !s.Metadata.isMarked():
		return broken("delete it, or rename it", "Service %s is not Fairlead's: it belongs to %s", place,
			ownerOf(s.Metadata))
	}
	return sv.checkPort(&s)
}

// checkSliced checks the target Service as checkUpstreamService does the upstream Service, in whose
// place it is.
func (sv *services) checkSliced() Hop {
	if !sv.target.isFairleads() {
		return broken("", "there is no Service %s", sv.url.Host).asSymptom()
	}
	return sv.checkPort(&sv.target.service)
}

// checkPort checks that a Service with a ClusterIP has the port, and makes it the upstream Service.
func (sv *services) checkPort(s *service) Hop {
	sv.upstream = s
	place := s.Metadata.namespacedName()
	p := s.port(sv.url.Port)
	if p == nil {
		h := broken("", "Service %s has no port %d; it has %s", place, sv.url.Port, s.portList())
		if sv.op.boundPort() > 0 {
			h.Fix = sv.op.managerRemedy()
			return h
		}
		return h.asSymptom()
	}
	sv.targetPort = p.target()
	return ok("%s, %s, port %d to the forwarders' port %d", place, s.Spec.ClusterIP, p.Port, sv.targetPort).
		with(fmt.Sprintf("selector %v, ClusterIPs %v", s.Spec.Selector, s.Spec.ClusterIPs))
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
func (sv *services) checkCluster(ctx context.Context) Hop {
	name, ns := sv.url.Service(), sv.url.Namespace()
	sv.target.found, sv.target.err = sv.get(ctx, &sv.target.service, "services", name, "--namespace", ns)
	if r := sv.target.err; r != nil {
		look := sv.command("get namespace %s", ns)
		switch r.kind {
		case noKubectl, unauthorized:
			return sv.answered(r, "", look)
		case unreachable:
			return broken("name the cluster with --context and --kubeconfig, and see that\n"+look,
				"%s does not answer: %s", sv.which, r.message)
		case other:
			return broken("see that this works:\n"+sv.command("get services --namespace %s", ns), "%s: %s",
				sv.which, r.message)
		}
	}
	sv.op.find(ctx)
	return ok("%s answers", sv.which)
}

// checkNamespace checks the namespace that the URL names.
func (sv *services) checkNamespace(ctx context.Context) Hop {
	name := sv.url.Namespace()
	var ns namespace
	found, err := sv.get(ctx, &ns, "namespaces", name)
	switch {
	case err != nil && sv.target.found: // the user may not read namespaces; the Service proves that it exists
		return ok("%s exists: it has the Service", name)
	case err != nil:
		return refusedHop("namespace "+name, err)
	case !found:
		return broken("create it, and the endpoint projects at that moment:\n"+sv.command("create namespace %s", name),
			"the second part of the hostname names namespace %s, which does not exist", name)
	case ns.Metadata.DeletionTimestamp != nil || ns.Status.Phase == "Terminating":
		return broken("wait until it is gone, create it anew, and the endpoint projects",
			"namespace %s is being deleted",
			name)
	}
	return ok("%s exists", name)
}
