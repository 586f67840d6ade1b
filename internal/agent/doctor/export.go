// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// agentEndpointKind is what kubectl is asked for.
const agentEndpointKind = "agentendpoints.bindings.fairlead.dev"

// exportChecks checks how a cluster exports an endpoint: the AgentEndpoint, the exporters, and the
// Service behind.
type exportChecks struct {
	*cluster
	url    account.EndpointURL // the URL of the AgentEndpoint to look for, unless it is named
	object string              // "<namespace>/<name>"; empty: by url

	found   *agentEndpoint
	refused *refusal
	missing bool  // the cluster does not have the kind
	pods    []pod // the exporters', once they were checked
}

// exportCluster returns the checks of the cluster that exports.
func (o *Options) exportCluster(contextName string) *exportChecks {
	return &exportChecks{cluster: o.cluster(contextName), url: o.URL, object: o.AgentEndpoint}
}

// hops checks everything. What is broken because of a later hop is a symptom.
func (e *exportChecks) hops(ctx context.Context) []Hop {
	return exportHops(e.checkCluster(ctx), HopAgentEndpoint, func() (object, exporter, service Hop) {
		exporter, service = e.checkExporter(ctx), e.checkService(ctx)
		return e.checkObject(exporter, service), exporter, service
	})
}

// exportHops returns the hops of a cluster that exports: its own and, unless that is broken, those
// that look returns.
func exportHops(cluster Hop, objectName string, look func() (object, exporter, service Hop)) []Hop {
	object, exporter, service := notChecked, notChecked, notChecked
	if cluster.Status != Broken {
		object, exporter, service = look()
	}
	return []Hop{cluster.named(HopExportCluster), object.named(objectName), exporter.named(HopExporter),
		service.named(HopExportService)}
}

// checkCluster looks for the AgentEndpoint, and so learns whether the cluster answers at all.
func (e *exportChecks) checkCluster(ctx context.Context) Hop {
	if e.found == nil {
		e.find(ctx)
	}
	return e.answered(e.refused, "name the cluster that exports with --export-context",
		e.command("get %s --all-namespaces", agentEndpointKind))
}

// find sets found, refused and missing.
func (e *exportChecks) find(ctx context.Context) {
	if e.object != "" {
		ns, name, _ := strings.Cut(e.object, "/")
		var one agentEndpoint
		there, err := e.get(ctx, &one, agentEndpointKind, name, "--namespace", ns)
		if e.setRefused(err); there && err == nil && one.Metadata.Name != "" {
			e.found = &one
		}
		return
	}
	var all list[agentEndpoint]
	_, err := e.get(ctx, &all, agentEndpointKind, "--all-namespaces")
	if err != nil && err.kind == forbidden {
		all.Items = nil
		_, err = e.get(ctx, &all, agentEndpointKind, "--namespace", e.url.Namespace())
	}
	e.setRefused(err)
	for i := range all.Items {
		u, err := account.ParseEndpointURL(all.Items[i].Spec.URL)
		if err == nil && u == e.url {
			e.found = &all.Items[i]
		}
	}
}

func (e *exportChecks) setRefused(r *refusal) {
	e.missing = r != nil && r.kind == noKind
	if !e.missing {
		e.refused = r
	}
}

// checkObject checks the AgentEndpoint's conditions, which are symptoms where the exporter or the
// Service is broken.
func (e *exportChecks) checkObject(exporter, service Hop) Hop {
	switch {
	case e.refused != nil:
		return refusedHop("AgentEndpoints", e.refused)
	case e.missing:
		return broken("install the chart there with export.enabled=true", "%s has no AgentEndpoints: the kind is "+
			"not installed", e.which)
	case e.found == nil && e.object != "":
		return broken("make it, or see the ones that there are:\n"+
			e.command("get %s --all-namespaces", agentEndpointKind), "there is no AgentEndpoint %s", e.object)
	case e.found == nil:
		return broken("make one, or see those that there are:\n"+
			e.command("get %s --all-namespaces", agentEndpointKind), "no AgentEndpoint has the URL %s", e.url.String())
	}
	a, place := e.found, e.found.Metadata.namespacedName()
	evidence := a.Status.Conditions.evidence("AgentEndpoint", place)
	for _, typ := range []string{"Accepted", "Bound", "UpstreamReady"} {
		c := a.Status.Conditions.get(typ)
		if c.Status != "False" {
			continue
		}
		h := broken(remedyForExport(c.Reason), "%s: %s (%s)", place, c.Message,
			joinNonEmpty(", ", c.Type+"=False", c.Reason)).with(evidence...)
		if typ == "UpstreamReady" && service.Status == Broken ||
			exporter.Status == Broken && (typ == "Bound" || a.isStale()) {
			h = h.asSymptom()
		}
		return h
	}
	if a.isStale() {
		h := broken("see whether an exporter is at work:\n"+
			e.command("get pods --all-namespaces -l app.kubernetes.io/name=fairlead-exporter"),
			"no exporter has read %s since its last change", place).with(evidence...)
		if exporter.Status == Broken {
			h = h.asSymptom()
		}
		return h
	}
	return ok("%s: Ready=%s (%s)", place, a.Status.Conditions.get("Ready").Status,
		a.Status.Conditions.get("Ready").Reason).with(evidence...)
}

// isStale reports whether the status is not about the present spec.
func (a *agentEndpoint) isStale() bool {
	return len(a.Status.Conditions) == 0 || a.Status.ObservedGeneration != a.Metadata.Generation
}

// checkExporter checks the exporters' pods.
func (e *exportChecks) checkExporter(ctx context.Context) Hop {
	const selector = "app.kubernetes.io/name=fairlead-exporter"
	var pods list[pod]
	if _, err := e.get(ctx, &pods, "pods", "--all-namespaces", "-l", selector); err != nil {
		return refusedHop("the exporters' pods", err)
	}
	e.pods = pods.Items
	ready, waiting, logs := 0, "", ""
	for _, p := range e.pods {
		if p.ready() {
			ready++
			continue
		}
		waiting = joinNonEmpty("; ", waiting, p.Metadata.namespacedName()+": "+p.notReadyReason())
		if logs == "" {
			logs = e.command("--namespace %s logs %s", p.Metadata.Namespace, p.Metadata.Name)
		}
	}
	switch cause := e.noSession(); {
	case len(e.pods) == 0:
		return broken("upgrade the release there with --set export.enabled=true and credentials.exporterApiKey",
			"no exporter runs in %s", e.which)
	case cause != "":
		return broken("see that fairlead-server runs and that the exporters' pods reach it; where it is the API key, "+
			"give the release another one, made for this cluster:\nfairlead api api-keys create --scope exporter",
			"the exporters have no session with the service: %s", cause)
	case ready == 0:
		return broken("see why: its log names a key that is refused, or a service that is not reached:\n"+logs,
			"no exporter is ready: %s", waiting)
	}
	h := ok("%s", printable.Count(ready, "exporter is ready", "exporters are ready"))
	h.Detail = joinNonEmpty("; ", h.Detail, waiting)
	return h
}

// noSession returns why the exporters have no session with the service, as the AgentEndpoint has
// it; "" where they have one.
func (e *exportChecks) noSession() string {
	if e.found == nil || e.found.isStale() {
		return ""
	}
	c := e.found.Status.Conditions.get("Bound")
	if c.Status != "False" || c.Reason != "Unreachable" {
		return ""
	}
	return c.Message
}

// checkService checks the Service that the AgentEndpoint names: the port, and endpoints that are
// ready.
func (e *exportChecks) checkService(ctx context.Context) Hop {
	if e.found == nil {
		return notChecked
	}
	ns, name, port := e.found.upstream()
	place := ns + "/" + name
	var s service
	found, err := e.get(ctx, &s, "services", name, "--namespace", ns)
	switch {
	case err != nil:
		return refusedHop("Service "+place, err)
	case !found:
		return broken(remedyForExport("UpstreamNotFound"), "Service %s does not exist", place)
	case s.Spec.Type == "ExternalName":
		return broken(remedyForExport("UnsupportedService"), "Service %s is an ExternalName, which is not exported",
			place)
	case s.port(port) == nil:
		return broken(remedyForExport("PortNotFound"), "Service %s has no port %d; it has %s", place, port,
			s.portList())
	}
	return e.checkReady(ctx, ns, name, &s, fmt.Sprintf("port %d", port))
}

// checkReady checks that there is a ready address behind a Service, whose ports are described.
func (e *exportChecks) checkReady(ctx context.Context, namespace, name string, s *service, ports string) Hop {
	place := namespace + "/" + name
	var slices list[endpointSlice]
	if _, err := e.get(ctx, &slices, "endpointslices.discovery.k8s.io", "--namespace", namespace, "-l",
		"kubernetes.io/service-name="+name); err != nil {
		return refusedHop("the EndpointSlices of Service "+place, err)
	}
	n := 0
	for _, slice := range slices.Items {
		n += slice.ready()
	}
	if n == 0 {
		return broken("see why the pods that it selects are not ready:\n"+
			e.command("--namespace %s describe service %s", namespace, name), "Service %s has no ready endpoint", place)
	}
	return ok("%s, %s: %s", place, ports, printable.Count(n, "endpoint is ready", "endpoints are ready")).
		with(fmt.Sprintf("Service %s: type %s, ports %s", place, s.Spec.Type, s.portList()))
}
