// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// importHops checks the cluster of Context, from the pod that calls to the forwarders. After a
// broken hop, those that depend on it are skipped.
func (c *clustersetChecks) importHops(ctx context.Context) {
	for _, s := range []struct {
		name  string
		needs []string // hops that must not be broken
		look  func(context.Context) Hop
	}{
		{HopCluster, nil, c.checkImportCluster},
		{HopCRDs, nil, c.checkCRDs},
		{HopNamespace, nil, c.checkImportNamespace},
		{HopOperator, nil, c.checkImports},
		{HopServiceImport, []string{HopCRDs, HopNamespace, HopOperator}, c.checkServiceImport},
		{HopDerivedService, []string{HopServiceImport}, c.checkDerivedService},
		{HopDNS, []string{HopServiceImport}, func(ctx context.Context) Hop {
			return c.dns.resolved(ctx, c.corefile(ctx), c.host(), c.host()+".", c.derived)
		}},
		{HopEndpointSlices, []string{HopServiceImport}, c.checkEndpointSlices},
		{HopForwarders, []string{HopOperator}, c.forwarders.check},
		{HopListener, []string{HopForwarders, HopEndpointSlices}, c.checkListeners},
		{HopEdge, []string{HopForwarders}, c.forwarders.checkEdge},
		{HopBoundEndpoint, []string{HopServiceImport}, c.checkBoundEndpoints},
	} {
		h := notChecked
		if !c.report.hasStatus(HopCluster, Broken) && !slices.ContainsFunc(s.needs, c.isMissing) {
			h = s.look(ctx)
		}
		c.add(s.name, h)
	}
}

// isMissing reports whether what depends on the hop cannot be checked. A ServiceImport that is not
// ready has all that there is to check.
func (c *clustersetChecks) isMissing(hop string) bool {
	return c.report.hasStatus(hop, Skipped) ||
		c.report.hasStatus(hop, Broken) && (hop != HopServiceImport || c.unusable)
}

// checkImportCluster reads the ServiceImport, and so learns whether the cluster answers at all.
func (c *clustersetChecks) checkImportCluster(ctx context.Context) Hop {
	var found serviceImport
	there, err := c.get(ctx, &found, serviceImportKind, c.name, "--namespace", c.namespace)
	if c.importErr = err; there && err == nil && found.Metadata.Name != "" {
		c.imported = &found
	}
	h := c.answered(err, "name the cluster with --context and --kubeconfig",
		c.command("get services --namespace %s", c.namespace))
	if h.Status != Broken {
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
	return o.Status.Conditions.get(conditionImports).Status != ""
}

// checkCRDs checks that the cluster has the kind ServiceImport.
func (c *clustersetChecks) checkCRDs(context.Context) Hop {
	switch {
	case c.importErr == nil:
		return ok("ServiceImports are installed in version v1beta1")
	case c.importErr.kind == noKind:
		return broken("install the CRDs of the Multi-Cluster Services API:\n"+c.command("apply %s", crdFlags),
			"the cluster has no ServiceImports: the kind is not installed in version v1beta1")
	}
	return refusedHop("ServiceImports", c.importErr)
}

// checkImportNamespace checks that the import can exist: imports are made in namespaces of the
// exports' name.
func (c *clustersetChecks) checkImportNamespace(ctx context.Context) Hop {
	var ns namespace
	found, err := c.get(ctx, &ns, "namespaces", c.namespace)
	switch {
	case err != nil && c.imported != nil:
		return ok("%s exists: it has the ServiceImport", c.namespace)
	case err != nil:
		return refusedHop("namespace "+c.namespace, err)
	case !found:
		return broken("create it, and the import appears at that moment:\n"+c.command("create namespace %s",
			c.namespace),
			"namespace %s does not exist here, and imports have the namespace of the export", c.namespace)
	case ns.Metadata.DeletionTimestamp != nil || ns.Status.Phase == "Terminating":
		return broken("wait until it is gone, and create it anew", "namespace %s is being deleted", c.namespace)
	}
	return ok("%s exists", c.namespace)
}

// checkImports checks the operator, and that it makes ServiceImports.
func (c *clustersetChecks) checkImports(ctx context.Context) Hop {
	h := c.op.checkOperator(ctx)
	if h.Status == Broken || c.op.operator == nil {
		return h
	}
	place, found := c.op.operator.Metadata.namespacedName(), c.op.operator.Status.Conditions.get(conditionImports)
	reachable := c.op.operator.Status.Conditions.get("APIReachable")
	switch {
	case found.Status == "":
		return broken("upgrade the release with --set clusterset.enabled=true",
			"%s imports no Services: clusterset.enabled is false", place).with(h.Evidence...)
	case reachable.Reason == "ClusterSetUnknown":
		return broken("update fairlead-server", "%s: %s (%s)", place, reachable.Message, reachable.Reason).
			with(h.Evidence...)
	case found.Status == "False" && c.imported == nil:
		return broken("change what the message names", "%s: %s (%s=False, %s)", place, found.Message, found.Type,
			found.Reason).with(h.Evidence...)
	}
	return h // another import may be the one that is not ready
}

// checkServiceImport checks the import and its conditions.
func (c *clustersetChecks) checkServiceImport(context.Context) Hop {
	place := c.namespace + "/" + c.name
	switch {
	case c.importErr != nil:
		return refusedHop("ServiceImport "+place, c.importErr)
	case c.imported == nil:
		c.unusable = true
		return broken("export the Service in a cluster of the account, and name that cluster with --export-context:\n"+
			c.exportCommand(), "there is no ServiceImport %s", place)
	case c.imported.Metadata.Labels[labelInstallation] == "":
		c.unusable = true
		return broken("delete it, and Fairlead makes its own", "ServiceImport %s is not Fairlead's: it belongs to %s",
			place, ownerOf(c.imported.Metadata))
	}
	i := c.imported
	evidence := []string{fmt.Sprintf("ServiceImport %s: type %s, ips %v, ports %s, clusters %v", place, i.Spec.Type,
		i.Spec.IPs, i.portList(), i.clusters())}
	evidence = append(evidence, i.Status.Conditions.evidence("ServiceImport", place)...)
	if i.Spec.Type == "Headless" {
		c.unusable = true
		return broken("export a Service with a cluster IP", "ServiceImport %s is Headless: the addresses of pods do "+
			"not reach other clusters, so its name has none", place).with(evidence...)
	}
	if found := i.Status.Conditions.get("Ready"); found.Status == "False" {
		return broken("change what the message names; the manager tries again", "%s: %s (Ready=False, %s)", place,
			found.Message, found.Reason).with(evidence...)
	}
	return ok("%s from %s, ports %s", place, strings.Join(i.clusters(), ", "), i.portList()).with(evidence...)
}

// checkDerivedService checks the Service whose address the import has.
func (c *clustersetChecks) checkDerivedService(ctx context.Context) Hop {
	if c.imported == nil {
		return unknown("the ServiceImport could not be read, so its name is not known")
	}
	name := c.imported.Metadata.Annotations[annotationDerived]
	if name == "" {
		return broken(c.op.managerRemedy(), "the ServiceImport names no derived Service (%s)", annotationDerived)
	}
	place := c.namespace + "/" + name
	var s service
	found, err := c.get(ctx, &s, "services", name, "--namespace", c.namespace)
	switch {
	case err != nil:
		return refusedHop("Service "+place, err)
	case !found:
		return broken(c.op.managerRemedy(), "Service %s, whose addresses the import has, does not exist", place)
	case len(c.imported.Spec.IPs) == 0 || !slices.Contains(s.Spec.ClusterIPs, c.imported.Spec.IPs[0]):
		return broken(c.op.managerRemedy(), "Service %s has the addresses %v, and the import %v", place,
			s.Spec.ClusterIPs, c.imported.Spec.IPs)
	}
	c.derived = &s
	return ok("%s, %s", place, strings.Join(s.Spec.ClusterIPs, ", ")).with("ports " + s.portList())
}
