// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/statustoken"
)

// healthPort is where forwarders answer /status; the chart gives them --health-addr=:8081.
const healthPort = 8081

// forwarder is a forwarder's pod and its status.
type forwarder struct {
	pod     pod
	status  *forwarderStatus // nil when it could not be asked
	refusal *refusal
}

// forwarderStatus is what a forwarder's /status answers, as far as the checks read it. Absent
// fields are unknown.
type forwarderStatus struct {
	Draining bool `json:"draining"`
	Session  struct {
		Up      bool      `json:"up"`
		Since   time.Time `json:"since"`
		Address string    `json:"address"`
		Error   string    `json:"error"`
		legs
	} `json:"session"`
	Listeners []listenerStatus `json:"listeners"`
	Access    *accessStatus    `json:"access"`
	// SealedPaths is nil if the forwarder is of an earlier version.
	SealedPaths *sealedPaths `json:"sealed_paths"`
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

// forwarders checks the forwarders' pods and what their status says.
type forwarders struct {
	*cluster
	report   *path.Report
	url      account.EndpointURL
	now      time.Time
	services *services

	podsInService map[string]bool
	all           []forwarder
}

// check checks the pods behind the upstream Service, and fetches the status of each ready
// one.
func (fw *forwarders) check(ctx context.Context) path.Hop {
	if fw.services.forwarderNamespace == "" {
		return path.Unknownf("the operator's namespace is not known; --operator-namespace names it")
	}
	pods, err := fw.pods(ctx)
	if err != nil {
		return refusedHop("the forwarders' pods in "+fw.services.forwarderNamespace, err)
	}
	var ready []pod
	waiting := ""
	for _, p := range pods {
		if p.ready() {
			ready = append(ready, p)
		} else {
			waiting = joinNonEmpty("; ", waiting, p.Metadata.Name+": "+p.notReadyReason())
		}
	}
	list := fw.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-forwarder",
		fw.services.forwarderNamespace)
	switch {
	case len(pods) == 0:
		return path.Brokenf("see that binding.enabled is true, and scale the Deployment up:\n"+
			fw.command("--namespace %s get deployments", fw.services.forwarderNamespace),
			"there is no forwarder in %s", fw.services.forwarderNamespace)
	case len(ready) == 0:
		return path.Brokenf("see why they are not ready:\n"+list, "no forwarder is ready: %s", waiting)
	}
	fw.fetchStatuses(ctx, ready)
	h := fw.behindService(ctx, ready)
	h.Detail = joinNonEmpty("; ", h.Detail, waiting)
	return h
}

// pods lists the pods that the upstream Service selects.
func (fw *forwarders) pods(ctx context.Context) ([]pod, *refusal) {
	selector := "app.kubernetes.io/name=fairlead-forwarder"
	if fw.services.upstream != nil && len(fw.services.upstream.Spec.Selector) > 0 {
		selector = ""
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance"} {
			if value := fw.services.upstream.Spec.Selector[key]; value != "" {
				selector = joinNonEmpty(",", selector, key+"="+value)
			}
		}
	}
	return listSelected[pod](ctx, fw.cluster, "pods", fw.services.forwarderNamespace, selector)
}

// behindService checks that the EndpointSlices of the upstream Service lead to the ready pods.
func (fw *forwarders) behindService(ctx context.Context, ready []pod) path.Hop {
	good := path.OKf("%s", printable.Count(len(ready), "forwarder is ready", "forwarders are ready"))
	if fw.services.upstream == nil {
		return good
	}
	namespace, name := fw.services.upstream.Metadata.Namespace, fw.services.upstream.Metadata.Name
	slices, err := listSelected[endpointSlice](ctx, fw.cluster, sliceKind, namespace, serviceSlices+name)
	if err != nil {
		return good.With("the EndpointSlices cannot be looked at: " + err.message)
	}
	namePods(slices, ready)
	addresses, serving := readyEndpoints(slices)
	if len(serving) == 0 && fw.services.isSliced() {
		return path.Brokenf(fw.services.op.managerRemedy(),
			"forwarders are ready, but the EndpointSlices of Service %s/%s list none of them", namespace, name)
	}
	if len(serving) == 0 {
		return path.Brokenf(
			"Kubernetes fills them in a moment; if they stay empty, compare the Service's selector with the pods' "+
				"labels:\n"+
				fw.command("--namespace %s get endpointslices -l kubernetes.io/service-name=%s",
					fw.services.forwarderNamespace, name),
			"forwarders are ready, but the EndpointSlices of Service %s/%s name none of them",
			fw.services.forwarderNamespace, name)
	}
	fw.podsInService = serving
	return good.With(fmt.Sprintf("EndpointSlices of %s: %v", name, addresses))
}

// namePods names the pods of endpoints that are known by their addresses only, as in our slices.
func namePods(slices []endpointSlice, pods []pod) {
	names := map[string]string{}
	for _, p := range pods {
		for _, ip := range append(p.Status.PodIPs, podIP{p.Status.PodIP}) {
			names[ip.IP] = p.Metadata.Name
		}
	}
	for i := range slices {
		for j := range slices[i].Endpoints {
			if e := &slices[i].Endpoints[j]; e.TargetRef.Name == "" && len(e.Addresses) > 0 {
				e.TargetRef.Name = names[e.Addresses[0]]
			}
		}
	}
}

// fetchStatuses fetches the status of the ready forwarders through the API server.
func (fw *forwarders) fetchStatuses(ctx context.Context, ready []pod) {
	fw.all = make([]forwarder, len(ready))
	var wg sync.WaitGroup
	for i := range ready {
		f := &fw.all[i]
		f.pod = ready[i]
		wg.Go(func() {
			var s forwarderStatus
			path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/status", fw.services.forwarderNamespace,
				f.pod.Metadata.Name, healthPort)
			if f.refusal = fw.raw(ctx, &s, path+fw.statusToken(f.pod)); f.refusal == nil {
				f.status = &s
			}
		})
	}
	wg.Wait()
}

// statusToken returns the query with the token of the pod's status. It is empty without the
// KubernetesOperator; the forwarder's refusal then names what is missing.
func (fw *forwarders) statusToken(p pod) string {
	if fw.services.op.operator == nil {
		return ""
	}
	return "?" + statustoken.Parameter + "=" + statustoken.Derive(fw.services.op.operator.Metadata.UID, p.Metadata.Name)
}

// serving returns the forwarders whose status is known and that get connections, and why
// the status of others is not known.
func (fw *forwarders) serving() (known []forwarder, why *refusal) {
	for _, f := range fw.all {
		switch {
		case f.status == nil:
			why = f.refusal
		case fw.podsInService == nil || fw.podsInService[f.pod.Metadata.Name]:
			known = append(known, f)
		}
	}
	return known, why
}

// checkListener looks up the port in the forwarders' status.
func (fw *forwarders) checkListener(context.Context) path.Hop {
	known, why := fw.serving()
	switch {
	case fw.services.targetPort == 0:
		return path.Unknownf("the target port is not known")
	case len(known) == 0:
		return fw.listenerByConditions(why)
	}
	bad := ""
	for _, f := range known {
		l := f.status.listener(fw.services.targetPort)
		switch {
		case l == nil:
			bad = joinNonEmpty("; ", bad, f.pod.Metadata.Name+" does not know of the port")
		case !l.Listening:
			bad = joinNonEmpty("; ", bad, f.pod.Metadata.Name+": "+joinNonEmpty("", l.Error))
		}
	}
	if bad != "" {
		return fw.notListening("port %d is not open in every forwarder: %s", fw.services.targetPort, bad)
	}
	return path.OKf("port %d is open in %s", fw.services.targetPort, printable.Count(len(known), "forwarder",
		"forwarders"))
}

// notListening returns the hop of forwarders that do not listen.
func (fw *forwarders) notListening(format string, args ...any) path.Hop {
	return path.Brokenf("another process on the port, or a forwarder that cannot read BoundEndpoints; its log has the "+
		"details:\n"+fw.command("--namespace %s logs -l app.kubernetes.io/name=fairlead-forwarder --tail 20",
		fw.services.forwarderNamespace), format, args...)
}

// listenerByConditions is for users who may not read the forwarders' status.
func (fw *forwarders) listenerByConditions(why *refusal) path.Hop {
	h := fw.unaskedHop(why)
	if fw.services.op.bound == nil {
		return h
	}
	c := fw.services.op.bound.Status.Conditions.Get("Reachable")
	listening, of, _ := strings.Cut(fw.services.op.bound.Status.Forwarders, "/")
	switch {
	case c.Reason == "ListenerFailed" && strings.Contains(c.Message, fmt.Sprintf("port %d:", fw.services.targetPort)):
		return path.Brokenf("free the port, or see why that forwarder lags behind", "%s (ListenerFailed)", c.Message).
			With(h.Detail)
	case c.Reason != "ListenerFailed" && listening == of && of != "" && of != "0":
		return path.OKf("port %d is open in %s forwarders, according to the BoundEndpoint", fw.services.targetPort,
			fw.services.op.bound.Status.Forwarders).
			With(h.Detail)
	}
	return h
}

// unaskedHop explains why no forwarder's status is known, with kubectl's message only once.
func (fw *forwarders) unaskedHop(why *refusal) path.Hop {
	if why != nil && (fw.report.HasStatus(path.HopListener, path.Unknown) ||
		fw.report.HasStatus(path.HopEdge, path.Unknown)) {
		return path.Unknownf("the forwarders could not be asked, as above")
	}
	if why == nil {
		return path.Unknownf("no forwarder could be asked")
	}
	return refusedHop("the forwarders' /status", why)
}

// checkEdge checks the forwarders' sessions with the service's edge.
func (fw *forwarders) checkEdge(context.Context) path.Hop {
	known, why := fw.serving()
	if len(known) == 0 {
		return fw.edgeByConditions(why)
	}
	bad, up := "", 0
	for _, f := range known {
		if f.status.Session.Up {
			up++
			continue
		}
		bad = joinNonEmpty("; ", bad, f.pod.Metadata.Name+": "+joinNonEmpty("", f.status.Session.Error))
	}
	if bad != "" {
		return path.Brokenf(
			"see that fairlead-server runs, that pods reach it (api.url, edge.address, proxy) and that the authtoken "+
				"is good",
			"%s no session with the edge: %s", printable.Count(len(known)-up, "forwarder has", "forwarders have"), bad)
	}
	h := path.OKf("%s a session with the edge", printable.Count(up, "forwarder has", "forwarders have"))
	h = fw.withLegs(h, known)
	if s := known[0].status.Session; !s.Since.IsZero() {
		h = h.With(fmt.Sprintf("%s: with %s since %s", known[0].pod.Metadata.Name, s.Address,
			s.Since.UTC().Format(time.RFC3339)))
	}
	return h
}

func (fw *forwarders) edgeByConditions(why *refusal) path.Hop {
	h := fw.unaskedHop(why)
	if fw.services.op.operator == nil {
		return h
	}
	switch c := fw.services.op.operator.Status.Conditions.Get("EdgeReachable"); c.Status {
	case "True":
		detail := "reported by the KubernetesOperator: " + c.Message
		if legs, of, _ := strings.Cut(fw.services.op.operator.Status.Legs, "/"); of != "" {
			detail += fmt.Sprintf("; connected to %s of %s replicas", legs, of)
		}
		return path.OKf("%s", detail).With(h.Detail)
	case "False":
		return path.Brokenf("see that fairlead-server runs and that pods reach it",
			"the KubernetesOperator reports: %s (%s)", c.Message, c.Reason).With(h.Detail)
	}
	return h
}
