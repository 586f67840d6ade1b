// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// Options are the URL to check and the sources of information.
type Options struct {
	// URL of the endpoint. Without AgentEndpoint it is needed.
	URL account.EndpointURL
	// AgentEndpoint is the "<namespace>/<name>" of an object that exports the endpoint, in the
	// cluster of ExportContext or, where that is empty, of Context; the path of a call is then
	// checked only with an ExportContext. Empty: the object is found by URL.
	AgentEndpoint string
	// ServiceExport and ServiceImport are the "<namespace>/<name>" of a Service that clusters
	// export to each other. Of the first, the cluster is checked as that of AgentEndpoint is; of
	// the second, that of Context, where pods call it, and that of ExportContext, if there is one.
	ServiceExport, ServiceImport string
	// ClustersetDomain is that of the names of imports; clusterset.local by default.
	ClustersetDomain string
	// ExportContext is the context of the cluster that exports the endpoint. Empty: only the
	// cluster of Context is asked, and whether it exports the endpoint itself where that may be
	// broken.
	ExportContext string
	// Kubectl runs the user's kubectl.
	Kubectl Runner
	// Context and Kubeconfig are passed on to kubectl; empty: its own choice.
	Context, Kubeconfig string
	// OperatorNamespace is where the operator is installed; empty: it is looked for in all
	// namespaces.
	OperatorNamespace string
	// FromPod is a "<namespace>/<pod>" that is asked to resolve the hostname, and of which is checked
	// whether it may call; empty: none is.
	FromPod string
	// Account has the endpoints of the API key's account; nil where there is no API key, and the
	// operator's word is taken.
	Account Account
	// Timeout bounds each call of kubectl and the one to the account; 10 s by default.
	Timeout time.Duration
	// Now is the time of the checks; that of Run by default.
	Now time.Time
}

// diagnosis is the order of the checks of one Run, and their result.
type diagnosis struct {
	o Options
	*cluster
	report   path.Report
	exported []path.Hop // the exporting cluster's hops, where they were checked first
}

// newDiagnosis returns a diagnosis with the defaults of the options.
func newDiagnosis(ctx context.Context, o Options) *diagnosis {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	w := &diagnosis{o: o, cluster: o.cluster(o.Context)}
	w.report = path.Report{URL: cmp.Or(o.AgentEndpoint, o.URL.String()), Context: w.cluster.contextName(ctx)}
	if w.report.Context != "" {
		w.cluster.which = "context " + w.report.Context
	}
	return w
}

// Run checks each hop of a call to o.URL.
func Run(ctx context.Context, o Options) path.Report {
	w := newDiagnosis(ctx, o)
	switch {
	case o.ServiceExport != "" || o.ServiceImport != "":
		w.runClusterset(ctx)
	case o.AgentEndpoint != "":
		w.runOfObject(ctx)
	default:
		w.runSteps(ctx)
	}
	w.report.Conclude()
	return w.report
}

// runOfObject checks the cluster of the AgentEndpoint and, where another context is named for it,
// the path of a call to its URL.
func (w *diagnosis) runOfObject(ctx context.Context) {
	exporting := w.o.exportCluster(cmp.Or(w.o.ExportContext, w.o.Context))
	hops := exporting.hops(ctx)
	if exporting.found != nil {
		w.report.URL = exporting.found.Spec.URL
	}
	u, err := account.ParseEndpointURL(w.report.URL)
	if w.o.ExportContext == "" || err != nil {
		w.report.Context = cmp.Or(w.o.ExportContext, w.report.Context)
		w.report.Hops = hops
		return
	}
	w.o.URL, w.exported = u, hops
	w.runSteps(ctx)
}

// pathChecks has the checks of the path of a call to one URL.
type pathChecks struct {
	op         *operatorInstallation
	services   *services
	forwarders *forwarders
	dns        *dnsCheck
	account    *accountCheck
}

// newPathChecks returns the checks of the path of a call to the URL.
func (w *diagnosis) newPathChecks(url account.EndpointURL) *pathChecks {
	t := &target{url: url}
	in := &operatorInstallation{cluster: w.cluster, report: &w.report, url: url, target: t,
		namespace: w.o.OperatorNamespace}
	sv := &services{cluster: w.cluster, url: url, target: t, op: in}
	return &pathChecks{op: in, services: sv,
		forwarders: &forwarders{cluster: w.cluster, report: &w.report, url: url, now: w.o.Now, services: sv},
		dns:        &dnsCheck{cluster: w.cluster, fromPod: w.o.FromPod},
		account: &accountCheck{account: w.o.Account, timeout: w.o.Timeout, now: w.o.Now, report: &w.report, url: url,
			exportContext: w.o.ExportContext, op: in}}
}

// checks are the checks of hops by their names.
type checks map[string]func(context.Context) path.Hop

// add adds the hops of the steps that have a check to the report, in their order.
func (all checks) add(ctx context.Context, r *path.Report, steps []path.Step) {
	for _, s := range steps {
		look := all[s.Name]
		if look == nil {
			continue
		}
		h := path.NotChecked()
		if !r.Skips(s) {
			h = look(ctx)
		}
		r.Add(h.Named(s.Name))
	}
}

// runSteps runs the checks of the path of a call. Checks of the operator and the account are
// independent of a broken hop.
func (w *diagnosis) runSteps(ctx context.Context) {
	p := w.newPathChecks(w.o.URL)
	all := checks{
		path.HopCluster:         p.services.checkCluster,
		path.HopNamespace:       p.services.checkNamespace,
		path.HopService:         p.services.checkTarget,
		path.HopUpstreamService: p.services.checkUpstreamService,
		path.HopDNS:             func(ctx context.Context) path.Hop { return p.dns.check(ctx, p.services) },
		path.HopForwarders:      p.forwarders.check,
		path.HopListener:        p.forwarders.checkListener,
		path.HopEdge:            p.forwarders.checkEdge,
		path.HopOperator:        p.op.checkOperator,
		path.HopBoundEndpoint:   p.op.checkBoundEndpoint,
		path.HopEndpoint:        p.account.checkEndpoint,
		path.HopAgent:           p.account.checkAgent,
	}
	if w.o.FromPod != "" {
		c := &accessCheck{cluster: w.cluster, fromPod: w.o.FromPod, forwarders: p.forwarders,
			target: endpointaccess.TargetOf(w.o.URL.Host, w.o.URL.Port)}
		all[path.HopAccess] = c.check
	}
	all.add(ctx, &w.report, path.ToEndpoint())
	w.report.Add(w.checkExport(ctx)...)
	w.report.MarkSymptoms(path.ToEndpoint())
	last := checks{path.HopUpstream: func(context.Context) path.Hop {
		return p.forwarders.checkUpstream(p.account.upstreamName())
	}}
	c := &sealCheck{cluster: w.cluster, account: p.account, forwarders: p.forwarders}
	if c.required() != "" || len(c.announced()) > 0 {
		last[path.HopSeal] = c.check
	}
	last.add(ctx, &w.report, path.ToEndpoint())
}

// checkExport returns the hops of the cluster that exports the endpoint: of the one that is named,
// else of the calling one, if it has an AgentEndpoint for an endpoint that may be broken. A broken
// one explains why the account has no endpoint or agent.
func (w *diagnosis) checkExport(ctx context.Context) []path.Hop {
	gone := w.report.HasStatus(path.HopEndpoint, path.Broken) || w.report.HasStatus(path.HopAgent, path.Broken)
	switch {
	case w.exported != nil:
		return w.exported
	case w.o.ExportContext != "":
		return w.o.exportCluster(w.o.ExportContext).hops(ctx)
	case gone && !w.report.HasStatus(path.HopCluster, path.Broken):
		own := w.o.exportCluster(w.o.Context)
		if own.find(ctx); own.found != nil {
			return own.hops(ctx)
		}
	}
	return nil
}

// refusedHop is the hop of an object that cannot, or may not, be read.
func refusedHop(what string, r *refusal) path.Hop {
	h := path.Unknownf("%s cannot be looked at: %s", what, r.message)
	if r.kind == forbidden {
		h.Detail = fmt.Sprintf("you may not look at %s: %s", what, r.message)
	}
	return h
}

// ago formats how long before now t was.
func ago(now, t time.Time) string {
	d := max(now.Sub(t), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
