// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/statustoken"
)

// healthPort is where forwarders answer /status; the chart gives them --health-addr=:8081.
const healthPort = 8081

// forwarder is a forwarder's pod and what it says of itself.
type forwarder struct {
	pod    pod
	status *forwarderStatus // nil when it could not be asked
	err    *refusal
}

// forwarderStatus is what a forwarder's /status answers, as far as the walk reads it. Absent fields
// are unknown.
type forwarderStatus struct {
	Draining bool `json:"draining"`
	Session  struct {
		Up      bool      `json:"up"`
		Since   time.Time `json:"since"`
		Address string    `json:"address"`
		Error   string    `json:"error"`
	} `json:"session"`
	Listeners []listenerStatus `json:"listeners"`
}

type listenerStatus struct {
	Port        int       `json:"port"`
	Listening   bool      `json:"listening"`
	Error       string    `json:"error"`
	Connections *int64    `json:"connections"`
	LastSuccess time.Time `json:"last_success"`
	LastFailure *struct {
		At      time.Time `json:"at"`
		Reason  string    `json:"reason"`
		Message string    `json:"message"`
	} `json:"last_failure"`
}

func (s *forwarderStatus) listener(port int) *listenerStatus {
	for i := range s.Listeners {
		if s.Listeners[i].Port == port {
			return &s.Listeners[i]
		}
	}
	return nil
}

// lookAtForwarders looks at the pods behind the upstream Service, and asks each that gets
// connections for its status.
func (w *walk) lookAtForwarders(ctx context.Context) Hop {
	if w.home == "" {
		return unknown("the operator's namespace is not known; --operator-namespace names it")
	}
	pods, err := w.forwarderPods(ctx)
	if err != nil {
		return refused("the forwarders' pods in "+w.home, err)
	}
	var ready []pod
	waiting := ""
	for _, p := range pods {
		if p.ready() {
			ready = append(ready, p)
		} else {
			waiting = joined("; ", waiting, p.Metadata.Name+": "+p.why())
		}
	}
	list := w.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-forwarder", w.home)
	switch {
	case len(pods) == 0:
		return broken("see that binding.enabled is true, and scale the Deployment up:\n"+
			w.command("--namespace %s get deployments", w.home),
			"there is no forwarder in %s", w.home)
	case len(ready) == 0:
		return broken("see why they are not ready:\n"+list, "no forwarder is ready: %s", waiting)
	}
	w.ask(ctx, ready)
	h := w.behindService(ctx, ready)
	h.Detail = joined("; ", h.Detail, waiting)
	return h
}

// forwarderPods lists the pods that the upstream Service selects.
func (w *walk) forwarderPods(ctx context.Context) ([]pod, *refusal) {
	selector := "app.kubernetes.io/name=fairlead-forwarder"
	if w.upstream != nil && len(w.upstream.Spec.Selector) > 0 {
		selector = ""
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance"} {
			if value := w.upstream.Spec.Selector[key]; value != "" {
				selector = joined(",", selector, key+"="+value)
			}
		}
	}
	var pods list[pod]
	_, err := w.k.get(ctx, &pods, "pods", "--namespace", w.home, "-l", selector)
	return pods.Items, err
}

// behindService says whether the EndpointSlices of the upstream Service lead to the ready pods.
func (w *walk) behindService(ctx context.Context, ready []pod) Hop {
	good := ok("%s", countOf(len(ready), "forwarder is ready", "forwarders are ready"))
	if w.upstream == nil {
		return good
	}
	name := w.upstream.Metadata.Name
	var slices list[endpointSlice]
	_, err := w.k.get(ctx, &slices, "endpointslices.discovery.k8s.io", "--namespace", w.home, "-l",
		"kubernetes.io/service-name="+name)
	if err != nil {
		return good.with("the EndpointSlices cannot be looked at: " + err.words)
	}
	addresses, serving := readyEndpoints(slices.Items)
	if len(serving) == 0 {
		return broken(
			"Kubernetes fills them in a moment; if they stay empty, compare the Service's selector with the pods' labels:\n"+
				w.command("--namespace %s get endpointslices -l kubernetes.io/service-name=%s", w.home, name),
			"forwarders are ready, but the EndpointSlices of Service %s/%s name none of them", w.home, name)
	}
	w.serving = serving
	return good.with(fmt.Sprintf("EndpointSlices of %s: %v", name, addresses))
}

// ask asks the ready forwarders for their status, through the API server.
func (w *walk) ask(ctx context.Context, ready []pod) {
	w.forwarders = make([]forwarder, len(ready))
	var wg sync.WaitGroup
	for i := range ready {
		f := &w.forwarders[i]
		f.pod = ready[i]
		wg.Go(func() {
			var s forwarderStatus
			path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/status", w.home, f.pod.Metadata.Name, healthPort)
			if f.err = w.k.raw(ctx, &s, path+w.statusToken(f.pod)); f.err == nil {
				f.status = &s
			}
		})
	}
	wg.Wait()
}

// statusToken returns the query with the token of the pod's status. It is empty without the
// KubernetesOperator; the forwarder then says what is missing.
func (w *walk) statusToken(p pod) string {
	if w.operator == nil {
		return ""
	}
	return "?" + statustoken.Parameter + "=" + statustoken.Derive(w.operator.Metadata.UID, p.Metadata.Name)
}

// asked returns the forwarders that said how they are and get connections, and why others did not
// say.
func (w *walk) asked() (known []forwarder, why *refusal) {
	for _, f := range w.forwarders {
		switch {
		case f.status == nil:
			why = f.err
		case w.serving == nil || w.serving[f.pod.Metadata.Name]:
			known = append(known, f)
		}
	}
	return known, why
}

// lookAtListener looks for the open port in the forwarders' status.
func (w *walk) lookAtListener(context.Context) Hop {
	known, why := w.asked()
	switch {
	case w.targetPort == 0:
		return unknown("the target port is not known")
	case len(known) == 0:
		return w.listenerByConditions(why)
	}
	bad := ""
	for _, f := range known {
		l := f.status.listener(w.targetPort)
		switch {
		case l == nil:
			bad = joined("; ", bad, f.pod.Metadata.Name+" does not know of the port")
		case !l.Listening:
			bad = joined("; ", bad, f.pod.Metadata.Name+": "+joined("", l.Error))
		}
	}
	if bad != "" {
		return broken("another process on the port, or a forwarder that cannot read BoundEndpoints; its log says more:\n"+
			w.command("--namespace %s logs -l app.kubernetes.io/name=fairlead-forwarder --tail 20", w.home),
			"port %d is not open in every forwarder: %s", w.targetPort, bad)
	}
	return ok("port %d is open in %s", w.targetPort, countOf(len(known), "forwarder", "forwarders"))
}

// listenerByConditions is for those who may not ask the forwarders.
func (w *walk) listenerByConditions(why *refusal) Hop {
	h := w.notAsked(why)
	if w.bound == nil {
		return h
	}
	c := w.bound.Status.Conditions.of("Reachable")
	listening, of, _ := strings.Cut(w.bound.Status.Forwarders, "/")
	switch {
	case c.Reason == "ListenerFailed" && strings.Contains(c.Message, fmt.Sprintf("port %d:", w.targetPort)):
		return broken("free the port, or see why that forwarder lags behind", "%s (ListenerFailed)", c.Message).with(h.Detail)
	case c.Reason != "ListenerFailed" && listening == of && of != "" && of != "0":
		return ok("port %d is open in %s forwarders, as the BoundEndpoint says", w.targetPort, w.bound.Status.Forwarders).
			with(h.Detail)
	}
	return h
}

// notAsked says why there is no forwarder's word; kubectl's own words only once.
func (w *walk) notAsked(why *refusal) Hop {
	if why != nil && (w.is(HopListener, Unknown) || w.is(HopEdge, Unknown)) {
		return unknown("the forwarders could not be asked, as above")
	}
	if why == nil {
		return unknown("no forwarder could be asked")
	}
	return refused("the forwarders' /status", why)
}

// lookAtEdge looks at the forwarders' sessions with the service's edge.
func (w *walk) lookAtEdge(context.Context) Hop {
	known, why := w.asked()
	if len(known) == 0 {
		return w.edgeByConditions(why)
	}
	bad, up := "", 0
	for _, f := range known {
		if f.status.Session.Up {
			up++
			continue
		}
		bad = joined("; ", bad, f.pod.Metadata.Name+": "+joined("", f.status.Session.Error))
	}
	if bad != "" {
		return broken(
			"see that fairlead-server runs, that pods reach it (api.url, edge.address, proxy) and that the authtoken is good",
			"%s no session with the edge: %s", countOf(len(known)-up, "forwarder has", "forwarders have"), bad)
	}
	h := ok("%s a session with the edge", countOf(up, "forwarder has", "forwarders have"))
	if s := known[0].status.Session; !s.Since.IsZero() {
		h = h.with(fmt.Sprintf("%s: with %s since %s", known[0].pod.Metadata.Name, s.Address,
			s.Since.UTC().Format(time.RFC3339)))
	}
	return h
}

func (w *walk) edgeByConditions(why *refusal) Hop {
	h := w.notAsked(why)
	if w.operator == nil {
		return h
	}
	switch c := w.operator.Status.Conditions.of("EdgeReachable"); c.Status {
	case "True":
		return ok("the KubernetesOperator says so: %s", c.Message).with(h.Detail)
	case "False":
		return broken("see that fairlead-server runs and that pods reach it", "the KubernetesOperator says: %s (%s)",
			c.Message, c.Reason).with(h.Detail)
	}
	return h
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
