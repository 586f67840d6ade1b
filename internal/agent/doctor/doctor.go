// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
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
	// Endpoints lists the endpoints with this URL in the API key's account, whose id it returns;
	// nil where there is no API key, and the operator's word is taken.
	ListEndpoints func(ctx context.Context, url string) (accountID string, endpoints []account.Endpoint, err error)
	// ListExports lists the endpoints of the binding clusterset as ListEndpoints does.
	ListExports func(ctx context.Context) (accountID string, endpoints []account.Endpoint, err error)
	// Timeout bounds each call of kubectl and the one to the account; 10 s by default.
	Timeout time.Duration
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// diagnosis is the state of one Run.
type diagnosis struct {
	o      Options
	k      *kubectl
	url    string
	report Report

	targetFound bool
	target      service
	targetErr   *refusal

	searchedIn   string // where operators were looked for, for people
	operators    []kubernetesOperator
	operatorsErr *refusal
	// the one that has, or would have, the hostname; nil when there is none or it may not be seen
	operator *kubernetesOperator
	bound    *boundEndpoint
	boundErr *refusal

	upstream *service
	// the namespace of the upstream Service, and so of the forwarders; empty while it is not known
	forwarderNamespace string
	targetPort         int // where the forwarders listen; 0 while it is not known
	podsInService      map[string]bool
	forwarders         []forwarder
	accountEndpoints   []account.Endpoint
	exported           []Hop // the exporting cluster's hops, where they were checked first
}

// Run checks each hop of a call to o.URL.
func Run(ctx context.Context, o Options) Report {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	w := &diagnosis{o: o, url: cmp.Or(o.AgentEndpoint, o.URL.String()), k: &kubectl{run: o.Kubectl, timeout: o.Timeout}}
	if o.Kubeconfig != "" {
		w.k.global = append(w.k.global, "--kubeconfig="+o.Kubeconfig)
	}
	w.report = Report{URL: w.url, Context: w.contextName(ctx)}
	if o.Context != "" {
		w.k.global = append(w.k.global, "--context="+o.Context)
	}
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
	exporting := w.exportCluster(cmp.Or(w.o.ExportContext, w.o.Context))
	hops := exporting.hops(ctx)
	if exporting.found != nil {
		w.url = exporting.found.Spec.URL
		w.report.URL = w.url
	}
	u, err := account.ParseEndpointURL(w.url)
	if w.o.ExportContext == "" || err != nil {
		w.report.Context = cmp.Or(w.o.ExportContext, w.report.Context)
		w.report.Hops = hops
		return
	}
	w.o.URL, w.url, w.exported = u, u.String(), hops
	w.runSteps(ctx)
}

// runSteps runs the checks in order. Checks on the path of a call are skipped after a broken one;
// those of the operator and the account are independent of it.
func (w *diagnosis) runSteps(ctx context.Context) {
	steps := []struct {
		name   string
		onPath bool
		look   func(context.Context) Hop
	}{
		{HopCluster, true, w.checkCluster},
		{HopNamespace, true, w.checkNamespace},
		{HopService, true, w.checkTarget},
		{HopUpstreamService, true, w.checkUpstreamService},
		{HopDNS, true, w.checkDNS},
		{HopForwarders, true, w.checkForwarders},
		{HopListener, true, w.checkListener},
		{HopAccess, true, w.checkAccess},
		{HopEdge, true, w.checkEdge},
		{HopOperator, false, w.checkOperator},
		{HopBoundEndpoint, false, w.checkBoundEndpoint},
		{HopEndpoint, false, w.checkEndpoint},
		{HopAgent, false, w.checkAgent},
		{HopUpstream, true, w.checkUpstream},
	}
	for _, s := range steps {
		if s.name == HopAccess && w.o.FromPod == "" {
			continue
		}
		if s.name == HopUpstream {
			w.report.Hops = append(w.report.Hops, w.checkExport(ctx)...)
		}
		if w.hasStatus(HopCluster, Broken) || s.onPath && w.anyBroken() {
			w.report.Hops = append(w.report.Hops, Hop{Name: s.name, Status: Skipped, Detail: "not checked"})
			continue
		}
		h := s.look(ctx)
		h.Name = s.name
		w.report.Hops = append(w.report.Hops, h)
	}
}

// checkExport returns the hops of the cluster that exports the endpoint: of the one that is named,
// else of the calling one, if it has an AgentEndpoint for an endpoint that may be broken. A broken
// one explains why the account has no endpoint or agent.
func (w *diagnosis) checkExport(ctx context.Context) []Hop {
	hops := w.exported
	gone := w.hasStatus(HopEndpoint, Broken) || w.hasStatus(HopAgent, Broken)
	switch {
	case hops != nil:
	case w.o.ExportContext != "":
		hops = w.exportCluster(w.o.ExportContext).hops(ctx)
	case gone && !w.hasStatus(HopCluster, Broken):
		own := w.exportCluster(w.o.Context)
		if own.find(ctx); own.found != nil {
			hops = own.hops(ctx)
		}
	}
	if !slices.ContainsFunc(hops, func(h Hop) bool { return h.Status == Broken }) {
		return hops
	}
	for i := range w.report.Hops {
		if h := &w.report.Hops[i]; h.Status == Broken && (h.Name == HopEndpoint || h.Name == HopAgent) {
			h.symptom, h.Fix = true, ""
		}
	}
	return hops
}

func (w *diagnosis) anyBroken() bool {
	for _, h := range w.report.Hops {
		if h.Status == Broken {
			return true
		}
	}
	return false
}

func (w *diagnosis) hasStatus(name string, status Status) bool {
	h, ok := w.report.Hop(name)
	return ok && h.Status == status
}

// contextName returns the context that kubectl uses, "" when kubectl does not print one.
func (w *diagnosis) contextName(ctx context.Context) string {
	if w.o.Context != "" {
		return w.o.Context
	}
	out, err := w.k.call(ctx, "config", "current-context")
	if err != nil {
		return ""
	}
	return lastLine(out)
}

// command returns a kubectl command line with the flags of the same cluster.
func (w *diagnosis) command(format string, args ...any) string { return w.o.command(format, args...) }

func (o Options) command(format string, args ...any) string {
	line := "kubectl"
	if o.Kubeconfig != "" {
		line += " --kubeconfig " + quoted(o.Kubeconfig)
	}
	if o.Context != "" {
		line += " --context " + quoted(o.Context)
	}
	return line + " " + fmt.Sprintf(format, args...)
}

// quoted quotes an argument for a shell where needed.
func quoted(arg string) string {
	if strings.Trim(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./") == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

func ok(format string, args ...any) Hop { return Hop{Status: OK, Detail: fmt.Sprintf(format, args...)} }

func unknown(format string, args ...any) Hop {
	return Hop{Status: Unknown, Detail: fmt.Sprintf(format, args...)}
}

func broken(fix, format string, args ...any) Hop {
	return Hop{Status: Broken, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

// refusedHop is the hop of an object that cannot, or may not, be read.
func refusedHop(what string, r *refusal) Hop {
	h := unknown("%s cannot be looked at: %s", what, r.message)
	if r.kind == forbidden {
		h.Detail = fmt.Sprintf("you may not look at %s: %s", what, r.message)
	}
	return h
}

func (h Hop) with(evidence ...string) Hop {
	h.Evidence = append(h.Evidence, evidence...)
	return h
}

func (h Hop) asSymptom() Hop {
	h.symptom = true
	return h
}

// ago formats how long before now t was.
func (w *diagnosis) ago(t time.Time) string {
	d := max(w.o.Now().Sub(t), 0)
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
