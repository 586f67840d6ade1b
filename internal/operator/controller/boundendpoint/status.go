// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// statusWriter computes and writes the status of BoundEndpoints. It is safe for concurrent use.
type statusWriter struct {
	client     client.Client
	layout     Layout
	account    Account
	forwarders Forwarders
	trust      Trust // nil: nothing is sealed
	recorder   events.EventRecorder
	clock      clock.PassiveClock
	throttle   *writeThrottle

	// By hostname:
	firstSince sync.Map // since when the first status of the object's spec is due
	replaced   sync.Map // the resourceVersion that the last write replaced
}

// report writes the status if it changed, and emits an event for a new reason. A new spec
// takes two writes: at once that it is observed, for which forwarders wait, and the rest when all
// of them listen. Later writes that only concern forwarders or agents are throttled.
func (w *statusWriter) report(
	ctx context.Context, b *v1alpha1.BoundEndpoint, now serviceState, found *status.Problem,
) (ctrl.Result, error) {
	report := w.forwarderReport(b)
	next := b.DeepCopy()
	next.Status = w.desiredStatus(b, now, found, report)
	first := w.firstStatusDelay(b, report)
	if found != nil {
		first = 0
	}
	switch {
	case first > 0 && b.Observed():
		return ctrl.Result{RequeueAfter: first}, nil // not all of them listen yet
	case first > 0:
		next.Status.Conditions = observedConditions(b, next)
	}
	if !equality.Semantic.DeepEqual(b.Status, next.Status) {
		if wait := w.throttleDelay(b, next); wait > 0 && (found == nil || found.Err == nil) {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		if stale, _ := w.replaced.Load(b.Name); stale == b.ResourceVersion {
			// the cache is stale, and another write would be a conflict
			return ctrl.Result{RequeueAfter: status.ConflictRetry}, nil
		}
		if retry, err := status.Write(ctx, w.client, "BoundEndpoint", b, next); retry > 0 || err != nil {
			return ctrl.Result{RequeueAfter: retry}, err
		}
		if next.ResourceVersion != b.ResourceVersion { // else the API server saw no difference
			w.replaced.Store(b.Name, b.ResourceVersion)
		}
		w.emitEvent(next, b.Status.Conditions)
	}
	if first > 0 {
		return ctrl.Result{RequeueAfter: first}, nil
	}
	w.settle(b.Name)
	if found == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: found.RetryAfter}, found.Err
}

// observedConditions returns the conditions of b with next's ServicesReady.
func observedConditions(b, next *v1alpha1.BoundEndpoint) []metav1.Condition {
	conditions := slices.Clone(b.Status.Conditions)
	meta.SetStatusCondition(&conditions,
		*meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ConditionServicesReady))
	return conditions
}

// firstStatusDelay returns how long the first status of a spec may still wait for the forwarders.
func (w *statusWriter) firstStatusDelay(b *v1alpha1.BoundEndpoint, report forwarderstatus.Report) time.Duration {
	if !isNewSpec(b) || report.Complete() {
		return 0
	}
	limit := firstStatusTimeout
	if report.Starting {
		limit = firstStatusStartTimeout
	}
	since, _ := w.firstSince.LoadOrStore(b.Name, w.clock.Now())
	return limit - w.clock.Now().Sub(since.(time.Time))
}

// throttleDelay returns how long a status has to wait that differs only in what forwarders and
// agents report.
func (w *statusWriter) throttleDelay(b, next *v1alpha1.BoundEndpoint) time.Duration {
	prompt := func(s *v1alpha1.BoundEndpointStatus) v1alpha1.BoundEndpointStatus {
		p := *s
		p.Forwarders, p.AllForwardersListen, p.Sealed, p.Conditions = "", false, "", nil
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionServicesReady); c != nil {
			p.Conditions = []metav1.Condition{*c}
		}
		return p
	}
	if isNewSpec(b) || !equality.Semantic.DeepEqual(prompt(&b.Status), prompt(&next.Status)) {
		return 0
	}
	return w.throttle.delay(b.Name, w.clock.Now())
}

// forget drops the state of a hostname whose object is gone.
func (w *statusWriter) forget(hostname string) {
	w.settle(hostname)
	w.replaced.Delete(hostname)
}

// settle drops the state of a hostname whose status is up to date.
func (w *statusWriter) settle(hostname string) {
	w.firstSince.Delete(hostname)
	w.throttle.cancel(hostname, w.clock.Now())
	w.forwarders.CancelNotify(hostname)
}

// emitEvent emits an event if the reason of Ready, or of ServicesReady or Sealed, changed. A new object that
// is ready at once gets none.
func (w *statusWriter) emitEvent(b *v1alpha1.BoundEndpoint, before []metav1.Condition) {
	for _, typ := range []string{v1alpha1.ConditionServicesReady, v1alpha1.ConditionSealed, v1alpha1.ConditionReady} {
		old, now := status.Changed(before, b.Status.Conditions, typ)
		if now == nil || old == nil && now.Status == metav1.ConditionTrue || installationWide(old, now) ||
			now.Status == metav1.ConditionUnknown && typ == v1alpha1.ConditionSealed {
			continue
		}
		status.Event(w.recorder, b, "Project", *now,
			now.Status == metav1.ConditionFalse && now.Reason != v1alpha1.ReasonReleased)
		return
	}
}

// installationWide reports whether the change concerns every hostname: forwarders lost the service
// or reached it again. The KubernetesOperator reports that once; thousands of equal events would
// add nothing.
func installationWide(old, now *metav1.Condition) bool {
	return now.Reason == v1alpha1.ReasonServiceUnreachable || old != nil &&
		old.Reason == v1alpha1.ReasonServiceUnreachable && now.Status == metav1.ConditionTrue
}

// desiredStatus computes the whole status.
func (w *statusWriter) desiredStatus(
	b *v1alpha1.BoundEndpoint, now serviceState, found *status.Problem, report forwarderstatus.Report,
) v1alpha1.BoundEndpointStatus {
	s := *b.Status.DeepCopy()
	if now.addressed != nil {
		s.Projection = now.projection
		s.ClusterIP, s.ClusterIPs = now.addressed.Spec.ClusterIP, now.addressed.Spec.ClusterIPs
	}
	s.Services = now.services
	s.Target = ""
	if b.Spec.Cluster == "" {
		s.Target = w.layout.upstream(b, s.Projection)
	}
	s.EndpointCount = int32(len(b.Spec.Endpoints))
	bound, removing := boundURLs(b)
	s.URLs = strings.Join(bound, ",")
	services := servicesReadyCondition(b, now, found)
	s.Forwarders, s.AllForwardersListen = forwarderCount(b, report)
	s.ConflictingService = ""
	if found != nil {
		s.ConflictingService = found.ConflictingService
	}
	reachable := w.reachableCondition(b, removing, report)
	problems := append([]metav1.Condition{services, reachable}, w.setSealed(b, &s, report)...)
	message := "pods reach " + s.URLs
	if b.Spec.Cluster != "" {
		message = fmt.Sprintf("forwarders reach %s/%s in cluster %s", b.Spec.Namespace, b.Spec.Service,
			b.Spec.Cluster)
	}
	status.Set(&s.Conditions, b.Generation, w.clock.Now(), services, reachable,
		status.Ready(message, problems...))
	return s
}

// boundURLs returns the URLs that the Services have, and those of them without an endpoint.
func boundURLs(b *v1alpha1.BoundEndpoint) (bound, removing []string) {
	for _, p := range b.Spec.Ports {
		if p.State == v1alpha1.StateReleased {
			continue
		}
		url := account.EndpointURL{Scheme: p.Scheme, Host: b.Name, Port: int(p.Port)}.String()
		bound = append(bound, url)
		if p.RemoveAfter != nil {
			removing = append(removing, url)
		}
	}
	return bound, removing
}

func servicesReadyCondition(b *v1alpha1.BoundEndpoint, now serviceState, found *status.Problem) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionServicesReady, Status: metav1.ConditionFalse}
	switch {
	case found != nil:
		c.Reason, c.Message = found.Reason, found.Message
	case b.Spec.State == v1alpha1.StateReleased:
		c.Reason, c.Message = v1alpha1.ReasonReleased,
			"its Services are deleted; the target ports are not used again yet"
	case b.Spec.Cluster != "":
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonClusterSet
		c.Message = fmt.Sprintf("it has no Services of its own: ServiceImport %s/%s leads to its target ports",
			b.Spec.Namespace, b.Spec.Service)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonProjected
		c.Message = projectedMessage(b, now)
		if now.admission != "" {
			c.Reason = v1alpha1.ReasonAdmissionChanged
		}
	}
	return c
}

const (
	// throttleInterval limits deferrable writes to 50 a second.
	throttleInterval = 20 * time.Millisecond
	// firstStatusTimeout is how long the first status of a spec waits for the forwarders to listen,
	// so that one write suffices.
	firstStatusTimeout = 3 * time.Second
	// firstStatusStartTimeout is how long it waits while the first forwarder of the installation
	// starts.
	firstStatusStartTimeout = 10 * time.Second
)

// writeThrottle spreads status writes that many objects need at once. It is safe for concurrent
// use.
type writeThrottle struct {
	mu    sync.Mutex
	next  time.Time            // the first free slot
	slots map[string]time.Time // hostname -> when it may write
}

func newWriteThrottle() *writeThrottle { return &writeThrottle{slots: map[string]time.Time{}} }

// delay returns how long the hostname has to wait for its slot. 0 means that it may write now, and
// frees the slot.
func (p *writeThrottle) delay(hostname string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.slots[hostname]
	if !ok {
		at = now
		if p.next.After(now) {
			at = p.next
		}
		p.next = at.Add(throttleInterval)
	}
	if at.After(now) {
		p.slots[hostname] = at
		return at.Sub(now)
	}
	delete(p.slots, hostname)
	return 0
}

// cancel frees the slot of a hostname that has nothing to write.
func (p *writeThrottle) cancel(hostname string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.slots[hostname]; !ok {
		return
	}
	delete(p.slots, hostname)
	if len(p.slots) == 0 {
		p.next = now.Add(throttleInterval)
	}
}
