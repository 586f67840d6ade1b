// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

const maxNote = 900 // an event's note has at most 1024 bytes

// Reporter tells people, by events on the KubernetesOperator object, about endpoints that are not
// projected: once for each thing there is to say. It is safe for concurrent use.
type Reporter struct {
	recorder events.EventRecorder
	about    func() runtime.Object

	mu       sync.Mutex
	said     map[string]string              // subject -> what was said last
	hostname map[string]map[string]struct{} // hostname -> endpoints refused
}

// NewReporter makes a Reporter. Events regard the object that about returns.
func NewReporter(recorder events.EventRecorder, about func() runtime.Object) *Reporter {
	return &Reporter{recorder: recorder, about: about, said: map[string]string{},
		hostname: map[string]map[string]struct{}{}}
}

// Endpoints takes the problems of a Change.
func (r *Reporter) Endpoints(problems []Problem) {
	for _, p := range problems {
		r.endpoint(p)
	}
}

func (r *Reporter) endpoint(p Problem) {
	if p.Text == "" {
		r.clear("endpoint " + p.EndpointID)
		return
	}
	endpoint := &corev1.ObjectReference{Kind: "Endpoint", Name: shorten(p.EndpointID, 253)}
	r.say("endpoint "+p.EndpointID, endpoint, v1alpha1.ReasonInvalidEndpoint,
		fmt.Sprintf("Endpoint %q with URL %q is not projected: %s", p.EndpointID, p.URL, p.Text))
}

// Hostname takes the endpoints that do not fit beside the hostname's others; those of an earlier
// call that are not among them do fit now.
func (r *Reporter) Hostname(hostname string, refused []Problem) {
	now := make(map[string]struct{}, len(refused))
	for _, p := range refused {
		now[p.EndpointID] = struct{}{}
		r.endpoint(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.hostname[hostname] {
		if _, still := now[id]; !still {
			delete(r.said, "endpoint "+id)
		}
	}
	delete(r.hostname, hostname)
	if len(now) > 0 {
		r.hostname[hostname] = now
	}
}

// ForeignObject says that somebody else's BoundEndpoint has a hostname's name.
func (r *Reporter) ForeignObject(o *v1alpha1.BoundEndpoint) {
	r.say("object "+string(o.UID), object(o.Name), v1alpha1.ReasonConflict,
		fmt.Sprintf(
			"BoundEndpoint %s was not made by this installation and stays as it is; %s is projected once it is deleted", o.Name,
			o.Name))
}

// TopLevelDomain says of a new object that its namespace is named like a top-level domain: once for
// each namespace, which may have thousands. It returns whether that was news.
func (r *Reporter) TopLevelDomain(o *v1alpha1.BoundEndpoint) bool {
	subject := "domain " + o.Spec.Namespace
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, said := r.said[subject]; said {
		return false
	}
	r.said[subject] = o.Name
	r.recorder.Eventf(r.about(), object(o.Name), corev1.EventTypeWarning, v1alpha1.ReasonTopLevelDomain, "Project",
		"Namespace %s is named like a top-level domain: pods that look up %s on the internet reach this endpoint instead; "+
			"rename the namespace, or let them "+
			"ask for %s. with a dot at its end", o.Spec.Namespace, o.Name, o.Name)
	return true
}

// PortsExhausted says for which ports of the hostname no target port is free.
func (r *Reporter) PortsExhausted(hostname string, ports []int32, within PortRange) {
	if len(ports) == 0 {
		r.clear("ports " + hostname)
		return
	}
	r.say("ports "+hostname, object(hostname), v1alpha1.ReasonPortsExhausted,
		fmt.Sprintf("No target port from %s is free for %s, ports %v; widen the range", within, hostname, ports))
}

// Refused says that the API server does not take the object; nil says that it does.
func (r *Reporter) Refused(hostname string, err error) {
	if err == nil {
		r.clear("refused " + hostname)
		return
	}
	r.say("refused "+hostname, object(hostname), v1alpha1.ReasonInvalidEndpoint,
		fmt.Sprintf("%s is not projected: %v", hostname, err))
}

// say emits an event that is related to the given thing: events with one reason about one object
// would be counted together if nothing told them apart.
func (r *Reporter) say(subject string, related runtime.Object, reason, note string) {
	note = shorten(note, maxNote)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[subject] == note {
		return
	}
	r.said[subject] = note
	r.recorder.Eventf(r.about(), related, corev1.EventTypeWarning, reason, "Project", "%s", note)
}

func object(hostname string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BoundEndpoint", Name: hostname}
}

func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-3], "") + "…"
}

func (r *Reporter) clear(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.said, subject)
}
