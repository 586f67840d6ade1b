// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
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
func (e *exportChecks) hops(ctx context.Context) []path.Hop {
	return exportHops(e.checkCluster(ctx), path.HopAgentEndpoint, func() (object, exporter, service path.Hop) {
		exporter, service = e.checkExporter(ctx), e.checkService(ctx)
		return e.checkObject(exporter, service), exporter, service
	})
}

// exportHops returns the hops of a cluster that exports: its own and, unless that is broken, those
// that look returns.
func exportHops(cluster path.Hop, objectName string, look func() (object, exporter, service path.Hop)) []path.Hop {
	object, exporter, service := path.NotChecked(), path.NotChecked(), path.NotChecked()
	if cluster.Status != path.Broken {
		object, exporter, service = look()
	}
	return []path.Hop{cluster.Named(path.HopExportCluster), object.Named(objectName), exporter.Named(path.HopExporter),
		service.Named(path.HopExportService)}
}

// checkCluster looks for the AgentEndpoint, and so learns whether the cluster answers at all.
func (e *exportChecks) checkCluster(ctx context.Context) path.Hop {
	if e.found == nil {
		e.find(ctx)
	}
	return e.answered(e.refused, "name the cluster that exports with --export-context, and see that this works:",
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
func (e *exportChecks) checkObject(exporter, service path.Hop) path.Hop {
	switch {
	case e.refused != nil:
		return refusedHop("AgentEndpoints", e.refused)
	case e.missing:
		return path.Brokenf("install the chart there with export.enabled=true", "%s has no AgentEndpoints: the kind "+
			"is not installed", e.which)
	case e.found == nil && e.object != "":
		return path.Brokenf("make it, or see the ones that there are:\n"+
			e.command("get %s --all-namespaces", agentEndpointKind), "there is no AgentEndpoint %s", e.object)
	case e.found == nil:
		return path.Brokenf("make one, or see those that there are:\n"+
			e.command("get %s --all-namespaces", agentEndpointKind), "no AgentEndpoint has the URL %s", e.url.String())
	}
	a, place := e.found, e.found.Metadata.namespacedName()
	evidence := a.Status.Conditions.Evidence("AgentEndpoint", place)
	for _, typ := range []string{"Accepted", "Bound", "UpstreamReady"} {
		c := a.Status.Conditions.Get(typ)
		if c.Status != "False" {
			continue
		}
		h := c.Broken(path.Remedy("AgentEndpoint", c.Reason), place).With(evidence...)
		if typ == "UpstreamReady" && service.Status == path.Broken ||
			exporter.Status == path.Broken && (typ == "Bound" || a.isStale()) {
			h = h.AsSymptom()
		}
		return h
	}
	if a.isStale() {
		h := path.Brokenf("see whether an exporter is at work:\n"+
			e.command("get pods --all-namespaces -l app.kubernetes.io/name=fairlead-exporter"),
			"no exporter has read %s since its last change", place).With(evidence...)
		if exporter.Status == path.Broken {
			h = h.AsSymptom()
		}
		return h
	}
	return a.Status.Conditions.Ready(place).With(evidence...)
}

// isStale reports whether the status is not about the present spec.
func (a *agentEndpoint) isStale() bool {
	return len(a.Status.Conditions) == 0 || a.Status.ObservedGeneration != a.Metadata.Generation
}

// checkExporter checks the exporters' pods.
func (e *exportChecks) checkExporter(ctx context.Context) path.Hop {
	const selector = "app.kubernetes.io/name=fairlead-exporter"
	var err *refusal
	if e.pods, err = listSelected[pod](ctx, e.cluster, "pods", "", selector); err != nil {
		return refusedHop("the exporters' pods", err)
	}
	ready, waiting, logs := 0, "", ""
	for _, p := range e.pods {
		if p.ready() {
			ready++
			continue
		}
		waiting = joinNonEmpty("; ", waiting, p.Metadata.namespacedName()+": "+p.notReadyReason())
		logs = cmp.Or(logs, e.command("--namespace %s logs %s", p.Metadata.Namespace, p.Metadata.Name))
	}
	switch cause := e.noSession(); {
	case len(e.pods) == 0:
		return path.Brokenf("upgrade the release there with --set export.enabled=true and credentials.exporterApiKey",
			"no exporter runs in %s", e.which)
	case cause != "":
		return path.Brokenf("see that fairlead-server runs and that the exporters' pods reach it; where it is the API "+
			"key, give the release another one, made for this cluster:\nfairlead api api-keys create --scope exporter",
			"the exporters have no session with the service: %s", cause)
	case ready == 0:
		return path.Brokenf("see why: its log names a key that is refused, or a service that is not reached:\n"+logs,
			"no exporter is ready: %s", waiting)
	}
	h := path.OKf("%s", printable.Count(ready, "exporter is ready", "exporters are ready"))
	h.Detail = joinNonEmpty("; ", h.Detail, waiting)
	return h
}

// noSession returns why the exporters have no session with the service, as the AgentEndpoint has
// it; "" where they have one.
func (e *exportChecks) noSession() string {
	if e.found == nil || e.found.isStale() {
		return ""
	}
	c := e.found.Status.Conditions.Get("Bound")
	if c.Status != "False" || c.Reason != "Unreachable" {
		return ""
	}
	return c.Message
}

// checkService checks the Service that the AgentEndpoint names: the port, and endpoints that are
// ready.
func (e *exportChecks) checkService(ctx context.Context) path.Hop {
	if e.found == nil {
		return path.NotChecked()
	}
	ns, name, port := e.found.upstream()
	place := ns + "/" + name
	s, bad := lookUp[service](ctx, e.cluster, "Service", place,
		path.Brokenf(path.Remedy("AgentEndpoint", "UpstreamNotFound"), path.NoService, place))
	switch {
	case bad != nil:
		return *bad
	case s.Spec.Type == "ExternalName":
		return path.Brokenf(path.Remedy("AgentEndpoint", "UnsupportedService"), path.ExternalName, place)
	case s.port(port) == nil:
		return path.Brokenf(path.Remedy("AgentEndpoint", "PortNotFound"), "Service %s has no port %d; it has %s",
			place, port, s.portList())
	}
	return e.checkReady(ctx, ns, name, s, fmt.Sprintf("port %d", port))
}

// checkReady checks that there is a ready address behind a Service, whose ports are described.
func (e *exportChecks) checkReady(ctx context.Context, namespace, name string, s *service, ports string) path.Hop {
	place := namespace + "/" + name
	slices, err := listSelected[endpointSlice](ctx, e.cluster, sliceKind, namespace, serviceSlices+name)
	if err != nil {
		return refusedHop("the EndpointSlices of Service "+place, err)
	}
	n := 0
	for _, slice := range slices {
		n += slice.ready()
	}
	if n == 0 {
		return path.Brokenf("see why the pods that it selects are not ready:\n"+
			e.command("--namespace %s describe service %s", namespace, name), path.NoReadyEndpoint, place)
	}
	return path.OKf("%s, %s: %s", place, ports, printable.Count(n, "endpoint is ready", "endpoints are ready")).
		With(fmt.Sprintf("Service %s: type %s, ports %s", place, s.Spec.Type, s.portList()))
}

// exportHops checks the cluster that exports: the ServiceExport, the exporters, and the Service.
func (c *clustersetChecks) exportHops(ctx context.Context) []path.Hop {
	c.exporting = c.o.exportCluster(cmp.Or(c.o.ExportContext, c.o.Context))
	return exportHops(c.checkExportCluster(ctx), path.HopServiceExport, func() (object, exporter, service path.Hop) {
		exporter = c.checkServiceExporter(ctx) // the object's remedy names its pods
		return c.checkServiceExport(), exporter, c.checkExportedService(ctx)
	})
}

// checkExportCluster reads the ServiceExport, and so learns whether the cluster answers at all.
func (c *clustersetChecks) checkExportCluster(ctx context.Context) path.Hop {
	e := c.exporting
	var found serviceExport
	there, err := e.get(ctx, &found, serviceExportKind, c.name, "--namespace", c.namespace)
	if c.exportErr = err; there && err == nil && found.Metadata.Name != "" {
		c.exported = &found
	}
	return e.answered(err, "name the cluster that exports with --export-context, and see that this works:",
		e.command("get services --namespace %s", c.namespace))
}

// checkServiceExport checks the conditions that the exporter has written.
func (c *clustersetChecks) checkServiceExport() path.Hop {
	place, e := c.namespace+"/"+c.name, c.exporting
	switch {
	case c.exportErr != nil && c.exportErr.kind == noKind:
		return path.Brokenf("install the CRDs of the Multi-Cluster Services API:\n"+e.command("apply %s", crdFlags),
			"%s has no ServiceExports: the kind is not installed in version v1beta1", e.which)
	case c.exportErr != nil:
		return refusedHop("ServiceExport "+place, c.exportErr)
	case c.exported == nil:
		return path.Brokenf("make it:\n"+c.exportCommand(), "there is no ServiceExport %s", place)
	}
	all := c.exported.Status.Conditions
	evidence := all.Evidence("ServiceExport", place)
	if len(all) == 0 {
		h := path.Brokenf("see that the release there has export.services=true, and what its exporters log",
			"no exporter has read ServiceExport %s", place)
		if len(e.pods) > 0 {
			h.Fix += ":\n" + e.command("--namespace %s logs -l app.kubernetes.io/name=fairlead-exporter --tail 20",
				e.pods[0].Metadata.Namespace)
		}
		return h
	}
	for _, typ := range []string{"Valid", "Ready"} {
		if found := all.Get(typ); found.Status == "False" {
			return found.Broken(path.Remedy("ServiceExport", found.Reason), place).With(evidence...)
		}
	}
	h := all.Ready(place).With(evidence...)
	if found := all.Get("Conflict"); found.Status == "True" {
		h.Detail += "; " + found.Reason + ": " + strings.TrimSuffix(found.Message, ".")
		h.Fix = "make the Services and ServiceExports of the clusters alike, or delete the one that should not count"
	}
	if found := all.Get("fairlead.dev/Carried"); found.Status == "False" {
		h.Detail += "; " + found.Message
	}
	return h
}

// checkServiceExporter checks the exporters' pods, and that they read ServiceExports.
func (c *clustersetChecks) checkServiceExporter(ctx context.Context) path.Hop {
	h := c.exporting.checkExporter(ctx)
	readsExports := func(p pod) bool { return p.hasFlag("--services") }
	if h.Status != path.OK || slices.ContainsFunc(c.exporting.pods, readsExports) {
		return h
	}
	return path.Brokenf("upgrade the release there with --set export.services=true",
		"the exporters in %s do not read ServiceExports: export.services is false", c.exporting.which)
}

// hasFlag reports whether a container of the pod is started with a flag.
func (p *pod) hasFlag(name string) bool {
	for _, c := range p.Spec.Containers {
		if slices.ContainsFunc(c.Args, func(a string) bool {
			flag, value, _ := strings.Cut(a, "=")
			return flag == name && value != "false"
		}) {
			return true
		}
	}
	return false
}

// checkExportedService checks the Service behind the export.
func (c *clustersetChecks) checkExportedService(ctx context.Context) path.Hop {
	place, e := c.namespace+"/"+c.name, c.exporting
	s, bad := lookUp[service](ctx, e.cluster, "Service", place,
		path.Brokenf(path.Remedy("ServiceExport", "NoService"), path.NoService, place))
	switch {
	case bad != nil:
		return *bad
	case s.Spec.Type == "ExternalName":
		return path.Brokenf(path.Remedy("ServiceExport", "InvalidServiceType"), path.ExternalName, place)
	}
	return e.checkReady(ctx, c.namespace, c.name, s, printable.Count(len(s.Spec.Ports), "port", "ports"))
}
