// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
)

// isFairleads reports whether an operator made the target Service for this hostname.
func (w *diagnosis) isFairleads() bool {
	return w.targetFound && w.target.Metadata.isMarked() &&
		w.target.Metadata.Annotations[annotationHostname] == w.o.URL.Host
}

// isSliced reports whether the target Service has EndpointSlices with the forwarders' addresses,
// and no upstream Service.
func (w *diagnosis) isSliced() bool {
	if !w.isFairleads() {
		return w.bound != nil && w.bound.Status.Projection == projectionSlices
	}
	return w.target.Spec.Type == "ClusterIP" && len(w.target.Spec.Selector) == 0 &&
		(w.bound == nil || w.bound.Status.Projection == projectionSlices)
}

// checkTarget checks that the Service that pods call exists and is Fairlead's.
func (w *diagnosis) checkTarget(context.Context) Hop {
	place := w.o.URL.Namespace() + "/" + w.o.URL.Service()
	switch {
	case w.targetErr != nil:
		return refusedHop("Service "+place, w.targetErr)
	case !w.targetFound:
		return w.noTarget(place)
	}
	m := w.target.Metadata
	evidence := fmt.Sprintf("Service %s: type %s, externalName %q, ports %s", place, w.target.Spec.Type,
		w.target.Spec.ExternalName, w.target.portList())
	switch {
	case !w.isFairleads():
		h := broken(
			"delete or rename it, or give the endpoint another URL; Fairlead takes the name over once it has been "+
				"free for a minute",
			"Service %s is not Fairlead's, which leaves it alone: it belongs to %s", place, ownerOf(m)).with(evidence)
		return h.with(w.boundCondition("ServicesReady")...)
	case m.DeletionTimestamp != nil:
		return broken("wait a moment, and look again; the operator makes it anew", "Service %s is being deleted",
			place).
			with(evidence)
	case w.isSliced():
		return ok("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).with(evidence)
	case w.target.Spec.Type != "ExternalName":
		return broken(w.managerRemedy(), "Service %s is Fairlead's, but its type was changed to %s", place,
			w.target.Spec.Type).with(evidence)
	}
	if _, home, _ := parseExternalName(w.target.Spec.ExternalName); home == "" {
		return broken(w.managerRemedy(), "Service %s is Fairlead's, but leads to %q, which is none of its names", place,
			w.target.Spec.ExternalName).with(evidence)
	}
	return ok("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).with(evidence)
}

// noTarget explains why the target Service does not exist.
func (w *diagnosis) noTarget(place string) Hop {
	missing := fmt.Sprintf("Service %s does not exist", place)
	if w.bound == nil || w.bound.Spec.State == "Released" {
		h := broken("", "%s", missing)
		if w.boundErr != nil {
			h.Fix = "ask a user with access: kubectl describe bep " + w.o.URL.Host
			return h
		}
		return h.asSymptom()
	}
	c := w.bound.Status.Conditions.get("ServicesReady")
	if c.Status != "False" {
		return broken(w.managerRemedy(), "%s, although its BoundEndpoint does", missing).
			with(w.boundCondition("ServicesReady")...)
	}
	return broken(remedyFor(c.Reason), "%s: %s (%s)", missing, c.Message, c.Reason).
		with(w.boundCondition("ServicesReady")...)
}

// managerRemedy is the remedy for damaged objects of Fairlead: a running manager repairs them, so
// it does not run.
func (w *diagnosis) managerRemedy() string {
	fix := "a running manager repairs this in a second; see whether it runs"
	if w.operator != nil {
		fix += ":\n" + w.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-manager",
			w.operator.Metadata.Namespace)
	}
	return fix
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
func (w *diagnosis) checkUpstreamService(ctx context.Context) Hop {
	name := w.locateUpstream()
	if w.forwarderNamespace == "" {
		return unknown("neither the Service nor a BoundEndpoint could be read, so its name is not known")
	}
	if w.isSliced() {
		return w.checkSliced()
	}
	place := w.forwarderNamespace + "/" + name
	var s service
	found, err := w.k.get(ctx, &s, "services", name, "--namespace", w.forwarderNamespace)
	switch {
	case err != nil:
		return refusedHop("Service "+place, err)
	case !found && len(w.operators) == 0 && w.operatorsErr == nil:
		return broken("", "%s leads to Service %s, which does not exist", w.o.URL.Host, place).asSymptom()
	case !found:
		return broken(w.managerRemedy(), "%s leads to Service %s, which does not exist", w.o.URL.Host, place)
	case !s.Metadata.isMarked():
		return broken("delete it, or rename it", "Service %s is not Fairlead's: it belongs to %s", place,
			ownerOf(s.Metadata))
	}
	return w.checkPort(&s)
}

// checkSliced checks the target Service as checkUpstreamService does the upstream Service, in whose
// place it is.
func (w *diagnosis) checkSliced() Hop {
	if !w.isFairleads() {
		return broken("", "there is no Service %s", w.o.URL.Host).asSymptom()
	}
	return w.checkPort(&w.target)
}

// checkPort checks that a Service with a ClusterIP has the port, and makes it the upstream Service.
func (w *diagnosis) checkPort(s *service) Hop {
	w.upstream = s
	place := s.Metadata.namespacedName()
	p := s.port(w.o.URL.Port)
	if p == nil {
		h := broken("", "Service %s has no port %d; it has %s", place, w.o.URL.Port, s.portList())
		if w.boundPort() > 0 {
			h.Fix = w.managerRemedy()
			return h
		}
		return h.asSymptom()
	}
	w.targetPort = p.target()
	return ok("%s, %s, port %d to the forwarders' port %d", place, s.Spec.ClusterIP, p.Port, w.targetPort).
		with(fmt.Sprintf("selector %v, ClusterIPs %v", s.Spec.Selector, s.Spec.ClusterIPs))
}

// locateUpstream returns the name of the upstream Service and sets its namespace and target port,
// from the target Service, else from the BoundEndpoint.
func (w *diagnosis) locateUpstream() string {
	name := ""
	if w.bound != nil {
		name, w.forwarderNamespace = w.bound.Spec.ProjectionID, w.bound.Metadata.Namespace
		if target, _, found := strings.Cut(w.bound.Status.Target, "."); found {
			name = target
		}
		w.targetPort = w.boundPort()
	}
	switch {
	case w.isSliced() && w.isFairleads():
		name, w.forwarderNamespace = "", w.operatorNamespaceOfTarget()
	case w.isFairleads():
		name, w.forwarderNamespace, _ = parseExternalName(w.target.Spec.ExternalName)
	}
	return name
}

// boundPort returns the BoundEndpoint's target port for the URL's port; 0 when it has none.
func (w *diagnosis) boundPort() int {
	if w.bound == nil {
		return 0
	}
	for _, p := range w.bound.Spec.Ports {
		if p.Port == w.o.URL.Port && p.State != "Released" {
			return p.TargetPort
		}
	}
	return 0
}

// boundCondition returns a condition of the BoundEndpoint as evidence.
func (w *diagnosis) boundCondition(typ string) []string {
	if w.bound == nil {
		return nil
	}
	c := w.bound.Status.Conditions.get(typ)
	return []string{fmt.Sprintf("BoundEndpoint %s: %s=%s %s: %s", w.bound.Metadata.namespacedName(), c.Type, c.Status,
		c.Reason,
		c.Message)}
}
