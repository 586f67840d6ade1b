// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Options say what to walk along, and whom to ask.
type Options struct {
	URL account.EndpointURL
	// Kubectl runs the user's kubectl.
	Kubectl Runner
	// Context and Kubeconfig are passed on to kubectl; empty: its own choice.
	Context, Kubeconfig string
	// OperatorNamespace is where the operator is installed; empty: it is looked for in all namespaces.
	OperatorNamespace string
	// FromPod is a "<namespace>/<pod>" that is asked to resolve the hostname; empty: none is.
	FromPod string
	// Endpoints lists the endpoints with this URL in the API key's account, whose id it returns; nil
	// where there is no API key, and the operator's word is taken.
	ListEndpoints func(ctx context.Context, url string) (accountID string, endpoints []account.Endpoint, err error)
	// Timeout bounds each call of kubectl and the one to the account; 10 s by default.
	Timeout time.Duration
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// walk is one walk: what was asked for, and what is known so far.
type walk struct {
	o      Options
	k      *kubectl
	url    string
	report Report

	targetFound bool
	target      service
	targetErr   *refusal

	where        string // where operators were looked for, for people
	operators    []kubernetesOperator
	operatorsErr *refusal
	// the one that has, or would have, the hostname; nil when there is none or it may not be seen
	operator *kubernetesOperator
	bound    *boundEndpoint
	boundErr *refusal

	upstream   *service
	home       string // the namespace of the upstream Service, and so of the forwarders; empty while it is not known
	targetPort int    // where the forwarders listen; 0 while it is not known
	serving    map[string]bool
	forwarders []forwarder
	atAccount  []account.Endpoint
}

// Run walks along the path of a call to o.URL.
func Run(ctx context.Context, o Options) Report {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	w := &walk{o: o, url: o.URL.String(), k: &kubectl{run: o.Kubectl, timeout: o.Timeout}}
	if o.Kubeconfig != "" {
		w.k.global = append(w.k.global, "--kubeconfig="+o.Kubeconfig)
	}
	w.report = Report{URL: w.url, Context: w.contextName(ctx)}
	if o.Context != "" {
		w.k.global = append(w.k.global, "--context="+o.Context)
	}
	w.all(ctx)
	w.report.Conclude()
	return w.report
}

// all takes the steps. Those on the way of a call are not taken past a broken one; what the
// operator and the account say is known independently.
func (w *walk) all(ctx context.Context) {
	steps := []struct {
		name   string
		onPath bool
		look   func(context.Context) Hop
	}{
		{HopCluster, true, w.lookAtCluster},
		{HopNamespace, true, w.lookAtNamespace},
		{HopService, true, w.lookAtTarget},
		{HopUpstreamService, true, w.lookAtUpstreamService},
		{HopDNS, true, w.lookAtDNS},
		{HopForwarders, true, w.lookAtForwarders},
		{HopListener, true, w.lookAtListener},
		{HopEdge, true, w.lookAtEdge},
		{HopOperator, false, w.lookAtOperator},
		{HopBoundEndpoint, false, w.lookAtBoundEndpoint},
		{HopEndpoint, false, w.lookAtEndpoint},
		{HopAgent, false, w.lookAtAgent},
		{HopUpstream, true, w.lookAtUpstream},
	}
	for _, s := range steps {
		if w.is(HopCluster, Broken) || s.onPath && w.anyBroken() {
			w.report.Hops = append(w.report.Hops, Hop{Name: s.name, Status: Skipped, Detail: "not checked"})
			continue
		}
		h := s.look(ctx)
		h.Name = s.name
		w.report.Hops = append(w.report.Hops, h)
	}
}

func (w *walk) anyBroken() bool {
	for _, h := range w.report.Hops {
		if h.Status == Broken {
			return true
		}
	}
	return false
}

func (w *walk) is(name string, status Status) bool {
	h, ok := w.report.Hop(name)
	return ok && h.Status == status
}

// contextName says which of kubectl's contexts is used, "" when kubectl does not say.
func (w *walk) contextName(ctx context.Context) string {
	if w.o.Context != "" {
		return w.o.Context
	}
	out, err := w.k.call(ctx, "config", "current-context")
	if err != nil {
		return ""
	}
	return lastLine(out)
}

// command is a command line for people, with the flags that lead to the same cluster.
func (w *walk) command(format string, args ...any) string {
	line := "kubectl"
	if w.o.Kubeconfig != "" {
		line += " --kubeconfig " + quoted(w.o.Kubeconfig)
	}
	if w.o.Context != "" {
		line += " --context " + quoted(w.o.Context)
	}
	return line + " " + fmt.Sprintf(format, args...)
}

// quoted makes an argument one word of a shell.
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

// refused is the hop of something that may not, or cannot, be looked at.
func refused(what string, r *refusal) Hop {
	h := unknown("%s cannot be looked at: %s", what, r.words)
	if r.kind == forbidden {
		h.Detail = fmt.Sprintf("you may not look at %s: %s", what, r.words)
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

// ago says how long before now t was.
func (w *walk) ago(t time.Time) string {
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
