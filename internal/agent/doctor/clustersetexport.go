// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

// exportHops checks the cluster that exports: the ServiceExport, the exporters, and the Service.
func (c *clustersetChecks) exportHops(ctx context.Context) []Hop {
	c.exporting = c.o.exportCluster(cmp.Or(c.o.ExportContext, c.o.Context))
	return exportHops(c.checkExportCluster(ctx), HopServiceExport, func() (object, exporter, service Hop) {
		exporter = c.checkServiceExporter(ctx) // the object's remedy names its pods
		return c.checkServiceExport(), exporter, c.checkExportedService(ctx)
	})
}

// checkExportCluster reads the ServiceExport, and so learns whether the cluster answers at all.
func (c *clustersetChecks) checkExportCluster(ctx context.Context) Hop {
	e := c.exporting
	var found serviceExport
	there, err := e.get(ctx, &found, serviceExportKind, c.name, "--namespace", c.namespace)
	if c.exportErr = err; there && err == nil && found.Metadata.Name != "" {
		c.exported = &found
	}
	return e.answered(err, "name the cluster that exports with --export-context",
		e.command("get services --namespace %s", c.namespace))
}

// checkServiceExport checks the conditions that the exporter has written.
func (c *clustersetChecks) checkServiceExport() Hop {
	place, e := c.namespace+"/"+c.name, c.exporting
	switch {
	case c.exportErr != nil && c.exportErr.kind == noKind:
		return broken("install the CRDs of the Multi-Cluster Services API:\n"+e.command("apply %s", crdFlags),
			"%s has no ServiceExports: the kind is not installed in version v1beta1", e.which)
	case c.exportErr != nil:
		return refusedHop("ServiceExport "+place, c.exportErr)
	case c.exported == nil:
		return broken("make it:\n"+c.exportCommand(), "there is no ServiceExport %s", place)
	}
	all := c.exported.Status.Conditions
	evidence := all.evidence("ServiceExport", place)
	if len(all) == 0 {
		h := broken("see that the release there has export.services=true, and what its exporters log",
			"no exporter has read ServiceExport %s", place)
		if len(e.pods) > 0 {
			h.Fix += ":\n" + e.command("--namespace %s logs -l app.kubernetes.io/name=fairlead-exporter --tail 20",
				e.pods[0].Metadata.Namespace)
		}
		return h
	}
	for _, typ := range []string{"Valid", "Ready"} {
		if found := all.get(typ); found.Status == "False" {
			return broken(remedyForServiceExport(found.Reason), "%s: %s (%s=False, %s)", place, found.Message, typ,
				found.Reason).with(evidence...)
		}
	}
	h := ok("%s: Ready=%s (%s)", place, all.get("Ready").Status, all.get("Ready").Reason).with(evidence...)
	if found := all.get("Conflict"); found.Status == "True" {
		h.Detail += "; " + found.Reason + ": " + strings.TrimSuffix(found.Message, ".")
		h.Fix = "make the Services and ServiceExports of the clusters alike, or delete the one that should not count"
	}
	if found := all.get("fairlead.dev/Carried"); found.Status == "False" {
		h.Detail += "; " + found.Message
	}
	return h
}

// checkServiceExporter checks the exporters' pods, and that they read ServiceExports.
func (c *clustersetChecks) checkServiceExporter(ctx context.Context) Hop {
	h := c.exporting.checkExporter(ctx)
	if h.Status != OK || slices.ContainsFunc(c.exporting.pods, func(p pod) bool { return p.hasFlag("--services") }) {
		return h
	}
	return broken("upgrade the release there with --set export.services=true",
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
func (c *clustersetChecks) checkExportedService(ctx context.Context) Hop {
	place, e := c.namespace+"/"+c.name, c.exporting
	var s service
	found, err := e.get(ctx, &s, "services", c.name, "--namespace", c.namespace)
	switch {
	case err != nil:
		return refusedHop("Service "+place, err)
	case !found:
		return broken(remedyForServiceExport("NoService"), "Service %s does not exist", place)
	case s.Spec.Type == "ExternalName":
		return broken(remedyForServiceExport("InvalidServiceType"), "Service %s is an ExternalName, which is not "+
			"exported", place)
	case s.Spec.ClusterIP == "None":
		return broken("export a Service with a cluster IP", "Service %s is headless: it is imported as a name "+
			"without addresses, and is not carried", place)
	}
	return e.checkReady(ctx, c.namespace, c.name, &s, printable.Count(len(s.Spec.Ports), "port", "ports"))
}
