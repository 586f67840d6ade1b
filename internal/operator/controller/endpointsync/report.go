// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/net/publicsuffix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

const maxNote = 900 // an event's note has at most 1024 bytes

// Reporter emits events on the KubernetesOperator object about endpoints that are not projected:
// one for each change of the message. It is safe for concurrent use.
type Reporter struct {
	ctx      context.Context
	recorder events.EventRecorder
	cached   client.Reader
	own      installation.Installation

	mu       sync.Mutex
	lastNote map[string]string              // subject -> last note
	refused  map[string]map[string]struct{} // hostname -> ids of refused endpoints
}

// NewReporter returns a Reporter that works until ctx ends. Its events regard the installation's
// KubernetesOperator.
func NewReporter(
	ctx context.Context, recorder events.EventRecorder, cached client.Reader, own installation.Installation,
) *Reporter {
	return &Reporter{ctx: ctx, recorder: recorder, cached: cached, own: own, lastNote: map[string]string{},
		refused: map[string]map[string]struct{}{}}
}

// ReportProblems emits events for the problems of a Change.
func (r *Reporter) ReportProblems(problems []Problem) {
	for _, p := range problems {
		r.reportProblem(p)
	}
}

func (r *Reporter) reportProblem(p Problem) {
	if p.Text == "" {
		r.clear("endpoint " + p.EndpointID)
		return
	}
	endpoint := &corev1.ObjectReference{Kind: "Endpoint", Name: truncate(p.EndpointID, 253)}
	r.emit("endpoint "+p.EndpointID, endpoint, v1alpha1.ReasonInvalidEndpoint,
		fmt.Sprintf("Endpoint %q with URL %q is not projected: %s", p.EndpointID, p.URL, p.Text))
}

// ReportRefused emits events for endpoints that conflict with the hostname's others. Endpoints of
// an earlier call that are missing now no longer conflict.
func (r *Reporter) ReportRefused(hostname string, refused []Problem) {
	now := make(map[string]struct{}, len(refused))
	for _, p := range refused {
		now[p.EndpointID] = struct{}{}
		r.reportProblem(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.refused[hostname] {
		if _, still := now[id]; !still {
			delete(r.lastNote, "endpoint "+id)
		}
	}
	delete(r.refused, hostname)
	if len(now) > 0 {
		r.refused[hostname] = now
	}
}

// ReportForeignObject reports that a foreign BoundEndpoint has the hostname's name.
func (r *Reporter) ReportForeignObject(o *v1alpha1.BoundEndpoint) {
	r.emit("object "+string(o.UID), boundEndpointRef(o.Name), v1alpha1.ReasonConflict,
		fmt.Sprintf(
			"BoundEndpoint %s was not made by this installation and stays as it is; %s is projected once it is deleted",
			o.Name, o.Name))
}

// ReportTopLevelDomain reports, once for each namespace, that a new object's namespace is named
// like a top-level domain. It returns whether it emitted an event.
func (r *Reporter) ReportTopLevelDomain(o *v1alpha1.BoundEndpoint) bool {
	subject := "domain " + o.Spec.Namespace
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, reported := r.lastNote[subject]; reported {
		return false
	}
	r.lastNote[subject] = o.Name
	r.recorder.Eventf(r.own.Operator(r.ctx, r.cached), boundEndpointRef(o.Name), corev1.EventTypeWarning,
		v1alpha1.ReasonTopLevelDomain, "Project",
		"Namespace %s is named like a top-level domain: pods that look up %s on the internet reach this endpoint "+
			"instead; rename the namespace, or let them "+
			"ask for %s. with a dot at its end", o.Spec.Namespace, o.Name, o.Name)
	return true
}

// ReportPortsExhausted reports the ports of the hostname for which no target port is free.
func (r *Reporter) ReportPortsExhausted(hostname string, ports []int32, portRange PortRange) {
	if len(ports) == 0 {
		r.clear("ports " + hostname)
		return
	}
	r.emit("ports "+hostname, boundEndpointRef(hostname), v1alpha1.ReasonPortsExhausted,
		fmt.Sprintf("No target port from %s is free for %s, ports %v; widen the range", portRange, hostname, ports))
}

// ReportRejected reports that the API server rejects the object; nil means that it accepts it.
func (r *Reporter) ReportRejected(hostname string, err error) {
	if err == nil {
		r.clear("refused " + hostname)
		return
	}
	r.emit("refused "+hostname, boundEndpointRef(hostname), v1alpha1.ReasonInvalidEndpoint,
		fmt.Sprintf("%s is not projected: %v", hostname, err))
}

// emit emits an event if the note changed. The related object distinguishes events: those with one
// reason about one object would be aggregated.
func (r *Reporter) emit(subject string, related runtime.Object, reason, note string) {
	note = truncate(note, maxNote)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastNote[subject] == note {
		return
	}
	r.lastNote[subject] = note
	operator := r.own.Operator(r.ctx, r.cached)
	r.recorder.Eventf(operator, related, corev1.EventTypeWarning, reason, "Project", "%s", note)
}

func boundEndpointRef(hostname string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BoundEndpoint", Name: hostname}
}

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-3], "") + "…"
}

func (r *Reporter) clear(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lastNote, subject)
}

// isTopLevelDomain reports whether a namespace is named like a top-level domain of the public
// suffix list. A pod's resolver tries the cluster's domains first, so that a lookup of example.com
// finds Service example of namespace com. The domain prod is excluded: names in it cannot be
// registered, and namespaces often have this name.
func isTopLevelDomain(namespace string) bool {
	if namespace == "prod" {
		return false
	}
	suffix, icann := publicsuffix.PublicSuffix(namespace)
	return icann && suffix == namespace
}
