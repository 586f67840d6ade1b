// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/statustoken"
)

// rig is an installation of its own with two agents, all behind one faultProxy, and a long
// connection through it. One endpoint is projected by ExternalName, the other by EndpointSlices.
type rig struct {
	c          *Cluster
	proxy      *faultProxy
	release    *Release
	ns, sliced string // of the target Services of web and of echo
	agents     []*Process
	web, echo  string    // URLs of the endpoints
	long       *heldConn // to echo
}

// newRig installs an operator that reaches the service through a proxy and admits the endpoints of
// its own namespaces only. The agents' upstreams are given.
func newRig(t testing.TB, direct *Service, webPort, echoPort string) *rig {
	t.Helper()
	c := direct.c
	g := &rig{c: c, ns: c.Namespace(t, "rig"), sliced: c.ProjectedNamespace(t, "rig", v1alpha1.ProjectionEndpointSlice)}
	var via *Service
	g.proxy, via = direct.startFaultProxy(t)
	g.release = via.Install(t, "--set", "manager.replicas=1", "--set", "manager.resources.requests.cpu=10m", "--set",
		"forwarder.resources.requests.cpu=10m",
		"--set-string", "binding.endpointSelector="+inNamespaces(g.ns, g.sliced))
	g.web, g.echo = "http://web."+g.ns, "tcp://echo."+g.sliced+":7000"
	g.agents = []*Process{via.Agent(t, "http", webPort, g.web), via.Agent(t, "tcp", echoPort, g.echo)}
	for _, host := range []string{"web." + g.ns, "echo." + g.sliced} {
		g.release.BoundEndpoint(t, host, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	return g
}

// inNamespaces is a selector of endpoints for the chart's values.
func inNamespaces(first, second string) string {
	return fmt.Sprintf(`ep.namespace == '%s' || ep.namespace == '%s'`, first, second)
}

// objects returns the Services and EndpointSlices of the installation and its BoundEndpoints, which
// an outage must not change.
func (g *rig) objects(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	var slices discoveryv1.EndpointSliceList
	if err := g.c.Client.List(ctx, &slices, client.InNamespace(g.sliced)); err != nil {
		return nil, err
	}
	for _, s := range slices.Items {
		found["EndpointSlice "+s.Namespace+"/"+s.Name] = fmt.Sprintf("uid %s, version %s", s.UID, s.ResourceVersion)
	}
	for _, ns := range []string{g.ns, g.sliced, g.release.Namespace} {
		var services corev1.ServiceList
		if err := g.c.Client.List(ctx, &services, client.InNamespace(ns)); err != nil {
			return nil, err
		}
		for _, s := range services.Items {
			found["Service "+ns+"/"+s.Name] = fmt.Sprintf("uid %s, version %s, ClusterIP %s", s.UID, s.ResourceVersion,
				s.Spec.ClusterIP)
		}
	}
	var bound v1alpha1.BoundEndpointList
	if err := g.c.Client.List(ctx, &bound, client.InNamespace(g.release.Namespace)); err != nil {
		return nil, err
	}
	for _, b := range bound.Items {
		found["BoundEndpoint "+b.Name] = "uid " + string(b.UID)
	}
	return found, nil
}

// checkUnchanged returns an error that names the objects that have changed or gone since before.
func (g *rig) checkUnchanged(ctx context.Context, before map[string]string) error {
	now, err := g.objects(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			errs = append(errs, fmt.Errorf("%s was %q and is %q", name, before[name], now[name]))
		}
	}
	return errors.Join(errs...)
}

// pods returns the installation's running pods.
func (g *rig) pods(ctx context.Context) ([]corev1.Pod, error) {
	return g.release.pods(ctx)
}

func (r *Release) pods(ctx context.Context, components ...string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.c.Client.List(ctx, &list, client.InNamespace(r.Namespace),
		client.MatchingLabels{"app.kubernetes.io/instance": r.Name})
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || len(components) > 0 &&
			!slices.Contains(components, p.Labels["app.kubernetes.io/name"])
	}), err
}

// forwarderStatuses returns the /status document of each forwarder.
func (r *Release) forwarderStatuses(ctx context.Context) (map[string]forwarderStatus, error) {
	pods, err := r.pods(ctx, "fairlead-forwarder")
	if err != nil {
		return nil, err
	}
	var operator v1alpha1.KubernetesOperator
	if err := r.c.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &operator); err != nil {
		return nil, err
	}
	statuses := map[string]forwarderStatus{}
	for _, p := range pods {
		st, err := r.forwarderStatus(ctx, p.Status.PodIP, statustoken.Derive(string(operator.UID), p.Name))
		if err != nil {
			return nil, fmt.Errorf("reading the status of %s: %w", p.Name, err)
		}
		statuses[p.Name] = st
	}
	return statuses, nil
}

func (r *Release) forwarderStatus(ctx context.Context, podIP, token string) (st forwarderStatus, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+podIP+":8081/status", nil)
	if err != nil {
		return st, err
	}
	statustoken.SetHeader(req, token)
	resp, err := r.c.HTTPClient().Do(req)
	if err != nil {
		return st, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return st, fmt.Errorf("status %d", resp.StatusCode)
	}
	return st, json.NewDecoder(resp.Body).Decode(&st) // the document, or the first of a stream of them
}

type forwarderStatus struct {
	Session struct {
		Up         bool           `json:"up"`
		ID         string         `json:"id"`
		Legs       []forwarderLeg `json:"legs"`
		WantedLegs int            `json:"wanted_legs"`
	} `json:"session"`
}

// forwarderLeg is one replica of the service that a forwarder is connected to.
type forwarderLeg struct {
	Draining bool `json:"draining"`
}

// usage is what a pod holds.
type usage struct{ goroutines, bytes int }

var (
	goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\S+)$`)
	residentLine   = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)
)

// podUsages reads the usage of every pod from its metrics.
func (g *rig) podUsages(ctx context.Context) (map[string]usage, error) {
	pods, err := g.pods(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]usage{}
	for _, p := range pods {
		_, body, err := g.c.get(ctx, "http://"+p.Status.PodIP+":8080/metrics")
		if err != nil {
			return nil, err
		}
		found[p.Name] = usage{metric(goroutinesLine, body), metric(residentLine, body)}
	}
	return found, nil
}

func metric(re *regexp.Regexp, body string) int {
	m := re.FindStringSubmatch(body)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return -1
	}
	return int(v)
}

// logsSince returns what each pod has logged since a time.
func (g *rig) logsSince(ctx context.Context, since time.Time) (map[string]string, error) {
	pods, err := g.pods(ctx)
	if err != nil {
		return nil, err
	}
	logs := map[string]string{}
	for _, p := range pods {
		out, err := g.c.Exec(ctx, "kubectl", "--namespace", p.Namespace, "logs", p.Name,
			"--since-time="+since.UTC().Format(time.RFC3339))
		if err != nil {
			return nil, err
		}
		logs[p.Name] = out
	}
	return logs, nil
}

// checkNotRestarted returns an error if a container was started again.
func (g *rig) checkNotRestarted(ctx context.Context) error {
	pods, err := g.pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				return fmt.Errorf("pod %s was started again %d times", p.Name, s.RestartCount)
			}
		}
	}
	for _, a := range g.agents {
		select {
		case <-a.Ended():
			return fmt.Errorf("an agent ended: %s", a.Output())
		default:
		}
	}
	return nil
}
