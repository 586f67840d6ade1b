// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
)

// ours says whether an operator made the target Service for this hostname.
func (w *walk) ours() bool {
	return w.targetFound && w.target.Metadata.marked() && w.target.Metadata.Annotations[annotationHostname] == w.o.URL.Host
}

// lookAtTarget looks at the Service that pods call: whether it is there, and whose it is.
func (w *walk) lookAtTarget(context.Context) Hop {
	place := w.o.URL.Namespace() + "/" + w.o.URL.Service()
	switch {
	case w.targetErr != nil:
		return refused("Service "+place, w.targetErr)
	case !w.targetFound:
		return w.noTarget(place)
	}
	m := w.target.Metadata
	says := fmt.Sprintf("Service %s: type %s, externalName %q, ports %s", place, w.target.Spec.Type,
		w.target.Spec.ExternalName, w.target.portList())
	switch {
	case !w.ours():
		h := broken(
			"delete or rename it, or give the endpoint another URL; Fairlead takes the name over once it has been free for "+
				"a minute",
			"Service %s is not Fairlead's, which leaves it alone: it belongs to %s", place, ownerOf(m)).with(says)
		return h.with(w.boundSays("ServicesReady")...)
	case m.DeletionTimestamp != nil:
		return broken("wait a moment, and look again; the operator makes it anew", "Service %s is being deleted", place).
			with(says)
	case w.target.Spec.Type != "ExternalName":
		return broken(w.repair(), "Service %s is Fairlead's, but somebody made it a %s", place, w.target.Spec.Type).with(says)
	}
	if _, home, _ := parseExternalName(w.target.Spec.ExternalName); home == "" {
		return broken(w.repair(), "Service %s is Fairlead's, but leads to %q, which is none of its names", place,
			w.target.Spec.ExternalName).with(says)
	}
	return ok("%s is Fairlead's (%s)", place, m.Annotations[annotationInstallation]).with(says)
}

// noTarget says why the target Service does not exist.
func (w *walk) noTarget(place string) Hop {
	missing := fmt.Sprintf("Service %s does not exist", place)
	if w.bound == nil || w.bound.Spec.State == "Released" {
		h := broken("", "%s", missing)
		if w.boundErr != nil {
			h.Fix = "ask whoever may look: kubectl describe bep " + w.o.URL.Host
			return h
		}
		return h.asSymptom()
	}
	c := w.bound.Status.Conditions.of("ServicesReady")
	if c.Status != "False" {
		return broken(w.repair(), "%s, although its BoundEndpoint does", missing).with(w.boundSays("ServicesReady")...)
	}
	return broken(remedy(c.Reason), "%s: %s (%s)", missing, c.Message, c.Reason).with(w.boundSays("ServicesReady")...)
}

// repair is the remedy for objects of ours that are not as they should be: the manager repairs
// them, so it is not at work.
func (w *walk) repair() string {
	fix := "a running manager repairs this in a second; see whether it runs"
	if w.operator != nil {
		fix += ":\n" + w.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-manager",
			w.operator.Metadata.Namespace)
	}
	return fix
}

// ownerOf says whose a Service is that no operator made for this hostname.
func ownerOf(m meta) string {
	by := m.Annotations[annotationInstallation]
	switch {
	case m.marked() && m.Annotations[annotationHostname] != "":
		return "hostname " + m.Annotations[annotationHostname] + " of the Fairlead installation " + by
	case m.Labels[labelInstallation] != "" && m.Annotations[annotationPlace] != "":
		return "somebody who copied Fairlead's Service " + m.Annotations[annotationPlace]
	case m.Annotations["meta.helm.sh/release-name"] != "":
		return "the Helm release " + m.Annotations["meta.helm.sh/release-namespace"] + "/" +
			m.Annotations["meta.helm.sh/release-name"]
	case len(m.OwnerReferences) > 0:
		return m.OwnerReferences[0].Kind + " " + m.OwnerReferences[0].Name
	case m.Labels["app.kubernetes.io/managed-by"] != "" && m.Labels[labelInstallation] == "":
		return m.Labels["app.kubernetes.io/managed-by"]
	}
	return "somebody else"
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

// lookAtUpstreamService follows the target Service to the ClusterIP Service beside the forwarders.
func (w *walk) lookAtUpstreamService(ctx context.Context) Hop {
	name := w.expectUpstream()
	if w.home == "" {
		return unknown("neither the Service nor a BoundEndpoint could be read, so its name is not known")
	}
	place := w.home + "/" + name
	var s service
	found, err := w.k.get(ctx, &s, "services", name, "--namespace", w.home)
	switch {
	case err != nil:
		return refused("Service "+place, err)
	case !found && len(w.operators) == 0 && w.operatorsErr == nil:
		return broken("", "%s leads to Service %s, which does not exist", w.o.URL.Host, place).asSymptom()
	case !found:
		return broken(w.repair(), "%s leads to Service %s, which does not exist", w.o.URL.Host, place)
	case !s.Metadata.marked():
		return broken("delete it, or rename it", "Service %s is not Fairlead's: it belongs to %s", place, ownerOf(s.Metadata))
	}
	w.upstream = &s
	p := s.port(w.o.URL.Port)
	if p == nil {
		h := broken("", "Service %s has no port %d; it has %s", place, w.o.URL.Port, s.portList())
		if w.boundPort() > 0 {
			h.Fix = w.repair()
			return h
		}
		return h.asSymptom()
	}
	w.targetPort = p.target()
	return ok("%s, %s, port %d to the forwarders' port %d", place, s.Spec.ClusterIP, p.Port, w.targetPort).
		with(fmt.Sprintf("selector %v, ClusterIPs %v", s.Spec.Selector, s.Spec.ClusterIPs))
}

// expectUpstream learns from the target Service, else from the BoundEndpoint, where the upstream
// Service is and what its target port should be.
func (w *walk) expectUpstream() string {
	name := ""
	if w.bound != nil {
		name, w.home = w.bound.Spec.ProjectionID, w.bound.Metadata.Namespace
		if target, _, found := strings.Cut(w.bound.Status.Target, "."); found {
			name = target
		}
		w.targetPort = w.boundPort()
	}
	if w.ours() {
		name, w.home, _ = parseExternalName(w.target.Spec.ExternalName)
	}
	return name
}

// boundPort is the target port that the BoundEndpoint has for the URL's port; 0 when it has none.
func (w *walk) boundPort() int {
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

// boundSays is a condition of the BoundEndpoint as evidence.
func (w *walk) boundSays(typ string) []string {
	if w.bound == nil {
		return nil
	}
	c := w.bound.Status.Conditions.of(typ)
	return []string{fmt.Sprintf("BoundEndpoint %s: %s=%s %s: %s", w.bound.Metadata.place(), c.Type, c.Status, c.Reason,
		c.Message)}
}
