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

	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// importHops checks the cluster of Context, from the pod that calls to the forwarders.
func (c *clustersetChecks) importHops(ctx context.Context) {
	checks{
		path.HopCluster:        c.checkImportCluster,
		path.HopCRDs:           c.checkCRDs,
		path.HopNamespace:      c.checkImportNamespace,
		path.HopOperator:       c.checkImports,
		path.HopServiceImport:  c.checkServiceImport,
		path.HopDerivedService: c.checkDerivedService,
		path.HopDNS: func(ctx context.Context) path.Hop {
			return c.dns.resolved(ctx, c.corefile(ctx), c.host(), c.host()+".", c.derived)
		},
		path.HopEndpointSlices: c.checkEndpointSlices,
		path.HopForwarders:     c.forwarders.check,
		path.HopListener:       c.checkListeners,
		path.HopEdge:           c.forwarders.checkEdge,
		path.HopBoundEndpoint:  c.checkBoundEndpoints,
	}.add(ctx, c.report, path.ToService())
}

// checkImportCluster reads the ServiceImport, and so learns whether the cluster answers at all.
func (c *clustersetChecks) checkImportCluster(ctx context.Context) path.Hop {
	var found serviceImport
	there, err := c.get(ctx, &found, serviceImportKind, c.name, "--namespace", c.namespace)
	if c.importErr = err; there && err == nil && found.Metadata.Name != "" {
		c.imported = &found
	}
	h := c.answered(err, "name the cluster with --context and --kubeconfig, and see that this works:",
		c.command("get services --namespace %s", c.namespace))
	if h.Status != path.Broken {
		c.findImporter(ctx)
	}
	return h
}

// findImporter finds the operator that imports: one with the condition, else one that binds.
func (c *clustersetChecks) findImporter(ctx context.Context) {
	c.op.list(ctx)
	for i := range c.op.operators {
		o := &c.op.operators[i]
		if c.op.operator == nil || !c.op.operator.importsServices() &&
			(o.importsServices() || !c.op.operator.Spec.BindingEnabled) {
			c.op.operator, c.services.forwarderNamespace = o, o.Metadata.Namespace
		}
	}
	if c.op.operator == nil {
		c.services.forwarderNamespace = c.o.OperatorNamespace
	}
}

// importsServices reports whether clusterset.enabled is set.
func (o *kubernetesOperator) importsServices() bool {
	return o.Status.Conditions.Get(conditionImports).Status != ""
}

// checkCRDs checks that the cluster has the kind ServiceImport.
func (c *clustersetChecks) checkCRDs(context.Context) path.Hop {
	switch {
	case c.importErr == nil:
		return path.OKf("ServiceImports are installed in version v1beta1")
	case c.importErr.kind == noKind:
		return path.Brokenf("install the CRDs of the Multi-Cluster Services API:\n"+c.command("apply %s", crdFlags),
			"the cluster has no ServiceImports: the kind is not installed in version v1beta1")
	}
	return refusedHop("ServiceImports", c.importErr)
}

// checkImportNamespace checks that the import can exist: imports are made in namespaces of the
// exports' name.
func (c *clustersetChecks) checkImportNamespace(ctx context.Context) path.Hop {
	return c.checkNamespace(ctx, c.namespace, "ServiceImport", c.imported != nil,
		path.Brokenf("create it, and the import appears at that moment",
			path.NoNamespace+" here, and imports have the namespace of the export", c.namespace),
		"wait until it is gone, and create it anew")
}

// checkImports checks the operator, and that it makes ServiceImports.
func (c *clustersetChecks) checkImports(ctx context.Context) path.Hop {
	h := c.op.checkOperator(ctx)
	if h.Status == path.Broken || c.op.operator == nil {
		return h
	}
	place, found := c.op.operator.Metadata.namespacedName(), c.op.operator.Status.Conditions.Get(conditionImports)
	reachable := c.op.operator.Status.Conditions.Get("APIReachable")
	switch {
	case found.Status == "":
		return path.Brokenf("upgrade the release with --set clusterset.enabled=true",
			"%s imports no Services: clusterset.enabled is false", place).With(h.Evidence...)
	case reachable.Reason == "ClusterSetUnknown":
		return path.Brokenf("update fairlead-server", "%s: %s (%s)", place, reachable.Message, reachable.Reason).
			With(h.Evidence...)
	case found.Status == "False" && c.imported == nil:
		return found.Broken("change what the message names", place).With(h.Evidence...)
	}
	return h // another import may be the one that is not ready
}

// checkServiceImport checks the import and its conditions.
func (c *clustersetChecks) checkServiceImport(context.Context) path.Hop {
	place := c.namespace + "/" + c.name
	switch {
	case c.importErr != nil:
		return refusedHop("ServiceImport "+place, c.importErr)
	case c.imported == nil:
		return path.Brokenf("export the Service in a cluster of the account, and name that cluster with "+
			"--export-context:\n"+c.exportCommand(), "there is no ServiceImport %s", place)
	case c.imported.Metadata.Labels[labelInstallation] == "":
		return path.Brokenf("delete it, and Fairlead makes its own",
			"ServiceImport %s is not Fairlead's: it belongs to %s", place, ownerOf(c.imported.Metadata))
	}
	i := c.imported
	evidence := []string{fmt.Sprintf("ServiceImport %s: type %s, ips %v, ports %s, clusters %v", place, i.Spec.Type,
		i.Spec.IPs, i.portList(), i.clusters())}
	evidence = append(evidence, i.Status.Conditions.Evidence("ServiceImport", place)...)
	if found := i.Status.Conditions.Get("Ready"); found.Status == "False" {
		return found.Broken("change what the message names; the manager tries again", place).With(evidence...).
			AsUsable()
	}
	if i.Spec.Type == "Headless" {
		return path.Unknownf("%s from %s is Headless: the ways to its single pods are not checked", place,
			strings.Join(i.clusters(), ", ")).With(evidence...)
	}
	return path.OKf("%s from %s, ports %s", place, strings.Join(i.clusters(), ", "), i.portList()).With(evidence...)
}

// checkDerivedService checks the Service whose address the import has.
func (c *clustersetChecks) checkDerivedService(ctx context.Context) path.Hop {
	if c.imported == nil {
		return path.Unknownf("the ServiceImport could not be read, so its name is not known")
	}
	if c.imported.Spec.Type == "Headless" {
		return path.NotChecked()
	}
	name := c.imported.Metadata.Annotations[annotationDerived]
	if name == "" {
		return path.Brokenf(c.op.managerRemedy(), "the ServiceImport names no derived Service (%s)", annotationDerived)
	}
	place := c.namespace + "/" + name
	s, bad := lookUp[service](ctx, c.cluster, "Service", place,
		path.Brokenf(c.op.managerRemedy(), "Service %s, whose addresses the import has, does not exist", place))
	switch {
	case bad != nil:
		return *bad
	case len(c.imported.Spec.IPs) == 0 || !slices.Contains(s.Spec.ClusterIPs, c.imported.Spec.IPs[0]):
		return path.Brokenf(c.op.managerRemedy(), "Service %s has the addresses %v, and the import %v", place,
			s.Spec.ClusterIPs, c.imported.Spec.IPs)
	}
	c.derived = s
	return path.OKf("%s, %s", place, strings.Join(s.Spec.ClusterIPs, ", ")).With("ports " + s.portList())
}

// checkEndpointSlices checks the forwarders' addresses and ports for each cluster that exports.
func (c *clustersetChecks) checkEndpointSlices(ctx context.Context) path.Hop {
	if c.imported != nil && c.imported.Spec.Type == "Headless" {
		return path.NotChecked() // those of the pods' Services
	}
	var err *refusal
	c.slices, err = listSelected[endpointSlice](ctx, c.cluster, sliceKind, c.namespace, labelServiceName+"="+c.name)
	if err != nil {
		return refusedHop("the EndpointSlices of ServiceImport "+c.namespace+"/"+c.name, err)
	}
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
		return path.Brokenf("look at the ports and the clusters below; if those are in order, at the manager's log",
			"%s", joinNonEmpty(": ", "no forwarder serves the import", strings.Join(text, "; ")))
	}
	return path.OKf("%s", strings.Join(text, "; "))
}

// checkListeners checks that the forwarders listen on the ports of the slices.
func (c *clustersetChecks) checkListeners(context.Context) path.Hop {
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
		return c.forwarders.notListening("not every forwarder listens: %s", bad)
	}
	return path.OKf("%s open in %s", printable.Count(len(ports), "port is", "ports are"),
		printable.Count(len(known), "forwarder", "forwarders"))
}

// checkBoundEndpoints checks the operator's record of each cluster's ports.
func (c *clustersetChecks) checkBoundEndpoints(ctx context.Context) path.Hop {
	if c.imported == nil || c.services.forwarderNamespace == "" {
		return path.Unknownf("the clusters that export, or the operator's namespace, are not known")
	}
	var missing, offline, bound, evidence []string
	for _, id := range c.imported.clusters() {
		name := c.name + "." + c.namespace + "." + id
		var b boundEndpoint
		found, err := c.get(ctx, &b, "boundendpoints.bindings.fairlead.dev", name, "--namespace",
			c.services.forwarderNamespace)
		switch reachable := b.Status.Conditions.Get("Reachable"); {
		case err != nil:
			return refusedHop("BoundEndpoint "+name, err)
		case !found || b.Metadata.Name == "":
			missing = append(missing, id)
		case reachable.Reason == "AgentOffline":
			offline = append(offline, id)
		default:
			bound = append(bound, name)
		}
		evidence = append(evidence, b.Status.Conditions.Evidence("BoundEndpoint", name)...)
	}
	h := path.OKf("%s", strings.Join(bound, ", "))
	note := ""
	if len(missing) > 0 {
		note = "no port of " + strings.Join(missing, ", ") + " is carried"
	}
	switch {
	case len(offline) > 0:
		h = path.Brokenf("see that the exporters there run and reach the service; name the cluster with "+
			"--export-context", "%s",
			joinNonEmpty("; ", "no exporter is connected in "+strings.Join(offline, ", "), note))
	case len(bound) == 0:
		h = path.Brokenf("see that the exporters there run and have bound the ports; name the cluster with "+
			"--export-context", "%s", cmp.Or(note, "no cluster exports the Service"))
	default:
		h.Detail = joinNonEmpty("; ", h.Detail, note)
	}
	return h.With(evidence...)
}

// corefile checks that the cluster's DNS serves the domain of imports, as far as CoreDNS' usual
// ConfigMap shows it.
func (c *clustersetChecks) corefile(ctx context.Context) path.Hop {
	domain := cmp.Or(c.o.ClustersetDomain, defaultClustersetDomain)
	m, bad := lookUp[configMap](ctx, c.cluster, "ConfigMap", "kube-system/coredns", path.Unknownf("there is no "+
		"ConfigMap kube-system/coredns, so whether the cluster's DNS serves %s is not known; "+
		"--from-pod NAMESPACE/POD asks from a pod", domain))
	if bad != nil {
		return *bad
	}
	corefile := m.Data["Corefile"]
	switch {
	case !strings.Contains(corefile, domain):
		return path.Brokenf("add a server block for it, and rights on ServiceImports (docs/use/clusterset.md):\n"+
			c.command("--namespace kube-system edit configmap coredns"),
			"CoreDNS does not serve %s: its Corefile has no such block", domain)
	case !strings.Contains(corefile, "multicluster"):
		return path.Brokenf("add the option multicluster to the plugin kubernetes of that block "+
			"(docs/use/clusterset.md):\n"+c.command("--namespace kube-system edit configmap coredns"),
			"CoreDNS has a block for %s without the option multicluster", domain)
	}
	h := path.OKf("CoreDNS has a block for %s", domain)
	if c.o.FromPod == "" {
		h.Detail += "; no pod was asked (--from-pod)"
	}
	return h
}
