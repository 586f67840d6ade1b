// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

// checkEndpointSlices checks the forwarders' addresses and ports for each cluster that exports.
func (c *clustersetChecks) checkEndpointSlices(ctx context.Context) Hop {
	var found list[endpointSlice]
	if _, err := c.get(ctx, &found, "endpointslices.discovery.k8s.io", "--namespace", c.namespace, "-l",
		labelServiceName+"="+c.name); err != nil {
		return refusedHop("the EndpointSlices of ServiceImport "+c.namespace+"/"+c.name, err)
	}
	c.slices = found.Items
	ready, ports := map[string]int{}, map[string][]string{}
	for _, s := range c.slices {
		id := s.Metadata.Labels[labelSourceCluster]
		ready[id] = max(ready[id], s.ready()) // there is a slice for each family of addresses
		for _, p := range s.Ports {
			if name := cmp.Or(p.Name, "(no name)"); !slices.Contains(ports[id], name) {
				ports[id] = append(ports[id], name)
			}
		}
	}
	ids := slices.Sorted(maps.Keys(ready))
	if c.imported != nil {
		for _, id := range c.imported.clusters() {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	var text []string
	for _, id := range ids {
		switch {
		case len(ports[id]) == 0:
			text = append(text, id+": none")
		case ready[id] == 0:
			text = append(text, id+": not ready")
		default:
			text = append(text, fmt.Sprintf("%s: %s for %s", id, printable.Count(ready[id], "forwarder", "forwarders"),
				strings.Join(ports[id], ", ")))
		}
	}
	if !slices.ContainsFunc(ids, func(id string) bool { return ready[id] > 0 && len(ports[id]) > 0 }) {
		return broken("look at the ports and the clusters below; if those are in order, at the manager's log",
			"%s", joinNonEmpty(": ", "no forwarder serves the import", strings.Join(text, "; ")))
	}
	return ok("%s", strings.Join(text, "; "))
}

// checkListeners checks that the forwarders listen on the ports of the slices.
func (c *clustersetChecks) checkListeners(context.Context) Hop {
	known, why := c.forwarders.serving()
	if len(known) == 0 {
		return c.forwarders.unaskedHop(why)
	}
	ports := map[int]bool{}
	bad := ""
	for _, s := range c.slices {
		for _, p := range s.Ports {
			ports[p.Port] = true
		}
	}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		for _, f := range known {
			switch l := f.status.listener(port); {
			case l == nil:
				bad = joinNonEmpty("; ", bad, fmt.Sprintf("%s does not know of port %d", f.pod.Metadata.Name, port))
			case !l.Listening:
				bad = joinNonEmpty("; ", bad, fmt.Sprintf("%s, port %d: %s", f.pod.Metadata.Name, port, l.Error))
			}
		}
	}
	if bad != "" {
		return broken("another process on the port, or a forwarder that cannot read BoundEndpoints; its log has the "+
			"details:\n"+c.command("--namespace %s logs -l app.kubernetes.io/name=fairlead-forwarder --tail 20",
			c.services.forwarderNamespace), "not every forwarder listens: %s", bad)
	}
	return ok("%s open in %s", printable.Count(len(ports), "port is", "ports are"),
		printable.Count(len(known), "forwarder", "forwarders"))
}

// checkBoundEndpoints checks the operator's record of each cluster's ports.
func (c *clustersetChecks) checkBoundEndpoints(ctx context.Context) Hop {
	if c.imported == nil || c.services.forwarderNamespace == "" {
		return unknown("the clusters that export, or the operator's namespace, are not known")
	}
	var missing, offline, bound, evidence []string
	for _, id := range c.imported.clusters() {
		name := c.name + "." + c.namespace + "." + id
		var b boundEndpoint
		found, err := c.get(ctx, &b, "boundendpoints.bindings.fairlead.dev", name, "--namespace",
			c.services.forwarderNamespace)
		switch reachable := b.Status.Conditions.get("Reachable"); {
		case err != nil:
			return refusedHop("BoundEndpoint "+name, err)
		case !found || b.Metadata.Name == "":
			missing = append(missing, id)
		case reachable.Reason == "AgentOffline":
			offline = append(offline, id)
		default:
			bound = append(bound, name)
		}
		evidence = append(evidence, b.Status.Conditions.evidence("BoundEndpoint", name)...)
	}
	h := ok("%s", strings.Join(bound, ", "))
	switch note := without("no port of %s is carried", missing); {
	case len(offline) > 0:
		h = broken("see that the exporters there run and reach the service; name the cluster with --export-context",
			"%s", joinNonEmpty("; ", "no exporter is connected in "+strings.Join(offline, ", "), note))
	case len(bound) == 0:
		h = broken("see that the exporters there run and have bound the ports; name the cluster with --export-context",
			"%s", cmp.Or(note, "no cluster exports the Service"))
	default:
		h.Detail = joinNonEmpty("; ", h.Detail, note)
	}
	return h.with(evidence...)
}

// without formats a list; "" when it is empty.
func without(format string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf(format, strings.Join(list, ", "))
}

// corefile checks that the cluster's DNS serves the domain of imports, as far as CoreDNS' usual
// ConfigMap shows it.
func (c *clustersetChecks) corefile(ctx context.Context) Hop {
	const place = "ConfigMap kube-system/coredns"
	domain := cmp.Or(c.o.ClustersetDomain, defaultClustersetDomain)
	var m configMap
	found, err := c.get(ctx, &m, "configmaps", "coredns", "--namespace", "kube-system")
	switch {
	case err != nil:
		return refusedHop(place, err)
	case !found:
		return unknown("there is no %s, so whether the cluster's DNS serves %s is not known; --from-pod NAMESPACE/POD "+
			"asks from a pod", place, domain)
	}
	corefile := m.Data["Corefile"]
	switch {
	case !strings.Contains(corefile, domain):
		return broken("add a server block for it, and rights on ServiceImports (docs/use/clusterset.md):\n"+
			c.command("--namespace kube-system edit configmap coredns"),
			"CoreDNS does not serve %s: its Corefile has no such block", domain)
	case !strings.Contains(corefile, "multicluster"):
		return broken("add the option multicluster to the plugin kubernetes of that block (docs/use/clusterset.md):\n"+
			c.command("--namespace kube-system edit configmap coredns"),
			"CoreDNS has a block for %s without the option multicluster", domain)
	}
	h := ok("CoreDNS has a block for %s", domain)
	if c.o.FromPod == "" {
		h.Detail += "; no pod was asked (--from-pod)"
	}
	return h
}
