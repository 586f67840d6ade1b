// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// The kinds of the Multi-Cluster Services API as kubectl is asked for them, and the command that
// installs them, which internal/clusterset has too.
const (
	serviceExportKind = "serviceexports.v1beta1.multicluster.x-k8s.io"
	serviceImportKind = "serviceimports.v1beta1.multicluster.x-k8s.io"

	crdFiles = "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_"
	crdFlags = "-f " + crdFiles + "serviceexports.yaml -f " + crdFiles + "serviceimports.yaml"
)

// defaultClustersetDomain is the domain of the names of imports.
const defaultClustersetDomain = "clusterset.local"

// clustersetChecks checks a Service that clusters export to each other: the import in one cluster,
// the export in another, and the account between them. It shares the steps about forwarders with
// the checks of an endpoint.
type clustersetChecks struct {
	o Options
	*cluster
	*pathChecks
	report          *path.Report
	namespace, name string

	imported  *serviceImport
	importErr *refusal
	derived   *service
	slices    []endpointSlice

	// what the account answered; nil if it did not
	records, ports []account.Endpoint
	accountErr     error

	exporting *exportChecks
	exported  *serviceExport
	exportErr *refusal
}

// runClusterset checks what the options name: the import, the export, or both.
func (w *diagnosis) runClusterset(ctx context.Context) {
	c := &clustersetChecks{o: w.o, cluster: w.cluster, report: &w.report}
	c.namespace, c.name, _ = strings.Cut(cmp.Or(w.o.ServiceImport, w.o.ServiceExport), "/")
	c.report.URL = c.host()
	c.pathChecks = w.newPathChecks(account.EndpointURL{Host: c.name + "." + c.namespace})
	both := c.o.ExportContext != ""
	if c.o.ServiceImport != "" || both {
		c.importHops(ctx)
	}
	var export []path.Hop
	if c.o.ServiceExport != "" || both {
		export = c.exportHops(ctx)
	}
	c.report.Add(c.checkRecords(ctx).Named(path.HopRecords))
	c.report.Add(c.checkCarriedPorts().Named(path.HopCarriedPorts))
	c.report.Add(export...)
	if h := c.report.Hop(path.HopServiceImport); h != nil && h.Status == path.Broken && c.imported == nil &&
		c.report.HasStatus(path.HopRecords, path.OK) {
		h.Detail += ", although it is exported"
		h.Fix = "see that the operator's API key is of the same account, and what its manager logs:\n" +
			c.command("--namespace %s logs -l app.kubernetes.io/name=fairlead-manager --tail 20",
				c.services.forwarderNamespace)
	}
	c.report.MarkSymptoms(path.ToService())
}

// host returns the name that pods call.
func (c *clustersetChecks) host() string {
	return c.name + "." + c.namespace + ".svc." + cmp.Or(c.o.ClustersetDomain, defaultClustersetDomain)
}

// listRows sets records and ports from the account.
func (c *clustersetChecks) listRows(ctx context.Context) error {
	all, foreign, err := c.account.list(ctx, account.EndpointFilter{Bindings: []string{account.BindingClusterset}})
	switch {
	case err != nil:
		return err
	case foreign != "":
		return errors.New("the " + foreign)
	}
	c.records, c.ports = []account.Endpoint{}, []account.Endpoint{}
	for _, e := range all {
		switch {
		case e.Owner == nil || e.Owner.Namespace != c.namespace || e.Owner.Name != c.name:
		case e.Type == account.TypeCloud:
			c.records = append(c.records, e)
		default:
			c.ports = append(c.ports, e)
		}
	}
	slices.SortFunc(c.records, func(a, b account.Endpoint) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return nil
}

// checkRecords checks that the account has an export of the Service.
func (c *clustersetChecks) checkRecords(ctx context.Context) path.Hop {
	if c.o.Account == nil {
		return c.recordsByCluster()
	}
	if c.accountErr = c.listRows(ctx); c.accountErr != nil {
		return c.recordsByCluster()
	}
	if len(c.records) == 0 {
		return path.Brokenf("export the Service in the cluster that has it:\n"+c.exportCommand(),
			"no cluster of the account exports %s/%s", c.namespace, c.name)
	}
	var clusters, evidence []string
	for _, e := range c.records {
		cluster := clusterOf(&e)
		clusters = append(clusters, cluster)
		if s := e.ServiceExport; s != nil {
			evidence = append(evidence, fmt.Sprintf("%s: %s of %s since %s, ready %v", e.ID, s.Type, cluster,
				e.CreatedAt.UTC().Format("2006-01-02 15:04:05"), s.Ready))
		}
	}
	return path.OKf("exported by %s, the oldest first", strings.Join(clusters, ", ")).With(evidence...)
}

// clusterOf returns the id of the cluster that exports the endpoint's Service.
func clusterOf(e *account.Endpoint) string {
	u, err := account.ParseBindingURL(account.BindingClusterset, e.URL)
	if err != nil {
		return "?"
	}
	return u.ClusterID()
}

// notAsked explains why the doctor has no answer of the account.
func (c *clustersetChecks) notAsked() string {
	if c.accountErr != nil {
		return "the account could not be asked: " + c.accountErr.Error()
	}
	return "the account was not asked (fairlead login)"
}

// recordsByCluster uses what the operator or the exporter has reported about the account.
func (c *clustersetChecks) recordsByCluster() path.Hop {
	if c.imported != nil && len(c.imported.Status.Clusters) > 0 {
		return path.OKf("exported by %s, as the operator has read it; %s", strings.Join(c.imported.clusters(), ", "),
			c.notAsked())
	}
	if c.exported != nil && c.exported.Status.Conditions.Get("Ready").Status == "True" {
		return path.OKf("exported, as the exporter has reported it; %s", c.notAsked())
	}
	return path.Unknownf("%s", c.notAsked())
}

// checkCarriedPorts checks that exporters are connected for the TCP ports of each export.
func (c *clustersetChecks) checkCarriedPorts() path.Hop {
	switch {
	case c.report.HasStatus(path.HopRecords, path.Broken):
		return path.NotChecked()
	case c.records == nil && c.report.HasStatus(path.HopBoundEndpoint, path.OK):
		return path.OKf("exporters are connected, as the operator has read it; %s", c.notAsked())
	case c.records == nil:
		return path.Unknownf("%s", c.notAsked())
	}
	online := map[string]int{}
	for _, e := range c.ports {
		if e.Status == account.StatusOnline {
			online[e.URL]++
		}
	}
	var on, off, uncarried []string
	for _, e := range c.records {
		if e.ServiceExport == nil {
			continue
		}
		for _, p := range e.ServiceExport.Ports {
			port := fmt.Sprintf("%s %d/%s", clusterOf(&e), p.Port, p.Protocol)
			bound := e.ServiceExport.BoundAt(p)
			isOff := func(number int32) bool {
				return online[account.ExportedPortURL(c.name, c.namespace, clusterOf(&e), int(number)).String()] == 0
			}
			switch {
			case len(bound) == 0:
				uncarried = append(uncarried, port)
			case slices.ContainsFunc(bound, isOff):
				off = append(off, port)
			default:
				on = append(on, port)
			}
		}
	}
	return carriedHop(on, off, uncarried)
}

func carriedHop(on, off, uncarried []string) path.Hop {
	note := ""
	if len(uncarried) > 0 {
		note = "not carried: " + strings.Join(uncarried, ", ")
	}
	switch {
	case len(off) > 0:
		return path.Brokenf(path.SeeExporters+"; fairlead doctor serviceexport/NAMESPACE/NAME with its context "+
			"looks at them", "%s", joinNonEmpty("; ", fmt.Sprintf(path.NoExporter, strings.Join(off, ", ")), note))
	case len(on) == 0:
		return path.Brokenf("export a Service with a cluster IP and a TCP port", "%s",
			joinNonEmpty("; ", "no port can be called", note))
	}
	return path.OKf("%s", joinNonEmpty("; ", "online: "+strings.Join(on, ", "), note))
}

// exportCommand returns the command that exports the Service, for the cluster that has it.
func (c *clustersetChecks) exportCommand() string {
	where := c.cluster
	if c.o.ExportContext != "" || c.o.ServiceExport == "" {
		where = c.o.cluster(c.o.ExportContext)
	}
	return fmt.Sprintf(`echo '{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport",`+
		`"metadata":{"namespace":%q,"name":%q}}' | %s`, c.namespace, c.name, where.command("apply -f -"))
}
