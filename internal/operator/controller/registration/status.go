// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// setHeartbeatConditions writes the result of the last heartbeat and whether the endpoints can be
// read. Before the first heartbeat, what an earlier manager wrote stays.
func (r *Registration) setHeartbeatConditions(s *v1alpha1.KubernetesOperatorStatus, generation int64) {
	if !r.attempted {
		return
	}
	for _, c := range r.heartbeatConditions(r.lastError, r.Endpoints.Status()) {
		last := meta.FindStatusCondition(s.Conditions, c.Type)
		repeated := c.Type == v1alpha1.ConditionAPIReachable && c.Status == metav1.ConditionFalse
		if last != nil && last.Reason == c.Reason && repeated {
			c.Message = last.Message // messages of a failing network differ between attempts
		}
		r.setCondition(s, generation, c)
	}
}

func (r *Registration) setCondition(s *v1alpha1.KubernetesOperatorStatus, generation int64, c metav1.Condition) {
	status.Set(&s.Conditions, generation, r.Clock.Now(), c)
}

func newCondition(typ string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message}
}

// heartbeatConditions returns the conditions that follow from the last heartbeat and from the feed.
// An unreachable API leaves Registered as it is.
func (r *Registration) heartbeatConditions(failure error, feed endpointsync.FeedStatus) []metav1.Condition {
	answered := r.apiReachableCondition(feed)
	if failure == nil {
		return []metav1.Condition{answered, newCondition(v1alpha1.ConditionRegistered, metav1.ConditionTrue,
			v1alpha1.ReasonRegistered, "the account knows this installation")}
	}
	typ, reason := classify(failure)
	if typ == v1alpha1.ConditionAPIReachable {
		return []metav1.Condition{newCondition(typ, metav1.ConditionFalse, reason, failure.Error())}
	}
	return []metav1.Condition{answered, newCondition(typ, metav1.ConditionFalse, reason, safeMessage(failure))}
}

// apiReachableCondition returns APIReachable for an account that answers heartbeats. It is False if
// the endpoints cannot be read.
func (r *Registration) apiReachableCondition(feed endpointsync.FeedStatus) metav1.Condition {
	switch {
	case feed.Err != nil && r.Clock.Now().Sub(feed.Since) >= watchGrace:
		return newCondition(v1alpha1.ConditionAPIReachable, metav1.ConditionFalse, v1alpha1.ReasonWatchFailed,
			"the account's API answers, but changes of endpoints do not arrive: "+feed.Err.Error())
	case feed.WithoutClusterset:
		return newCondition(v1alpha1.ConditionAPIReachable, metav1.ConditionTrue, v1alpha1.ReasonClusterSetUnknown,
			"the account's API answers, but does not know the binding clusterset: nothing is imported from other "+
				"clusters, and imports that exist stay as they are; update the server, or set clusterset.enabled=false")
	case feed.Polling:
		return newCondition(v1alpha1.ConditionAPIReachable, metav1.ConditionTrue, v1alpha1.ReasonOnline,
			"the account's API answers, but does not support watches: changes take up to 10 s")
	}
	return newCondition(v1alpha1.ConditionAPIReachable, metav1.ConditionTrue, v1alpha1.ReasonOnline,
		"the account's API answers")
}

// classify returns the condition that a failed heartbeat makes False, and the reason. It is based
// on the HTTP status, so that other implementations of the API are understood as well.
func classify(failure error) (typ, reason string) {
	var e *account.Error
	if !errors.As(failure, &e) || e.Code == account.CodeUnreachable {
		return v1alpha1.ConditionAPIReachable, v1alpha1.ReasonUnreachable
	}
	switch code := e.HTTPStatus(); {
	case e.Code == account.CodeBadAnswer, code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return v1alpha1.ConditionAPIReachable, v1alpha1.ReasonBadAnswer
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return v1alpha1.ConditionAPIReachable, v1alpha1.ReasonUnavailable
	case e.Code == account.CodeUnknownKey:
		return v1alpha1.ConditionRegistered, v1alpha1.ReasonUnknownKey
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return v1alpha1.ConditionRegistered, v1alpha1.ReasonUnauthorized
	case e.Code == account.CodeLimit:
		return v1alpha1.ConditionRegistered, v1alpha1.ReasonLimitReached
	}
	return v1alpha1.ConditionRegistered, v1alpha1.ReasonRejected
}

// safeMessage returns the account's own message if there is one.
func safeMessage(failure error) string {
	if e, ok := errors.AsType[*account.Error](failure); ok {
		return cmp.Or(e.Msg, e.Error())
	}
	return failure.Error()
}

// countEndpoints counts the projected hostnames, and those that are ready.
func (r *Registration) countEndpoints(ctx context.Context, s *v1alpha1.KubernetesOperatorStatus) error {
	var list v1alpha1.BoundEndpointList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Anchors.Installation.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing BoundEndpoints: %w", err)
	}
	s.BoundEndpoints, s.ReadyEndpoints = 0, 0
	for i := range list.Items {
		b := &list.Items[i]
		if !r.Anchors.Installation.Owns(b) || b.Spec.State == v1alpha1.StateReleased {
			continue
		}
		s.BoundEndpoints++
		if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady) {
			s.ReadyEndpoints++
		}
	}
	return nil
}

// emitEvents emits an event for each condition whose reason changed. A new object without problems
// gets none.
func (r *Registration) emitEvents(o *v1alpha1.KubernetesOperator, before []metav1.Condition) {
	for _, c := range o.Status.Conditions {
		old, now := status.Changed(before, o.Status.Conditions, c.Type)
		negative := c.Type == v1alpha1.ConditionAccountChanged || c.Type == v1alpha1.ConditionRemovalsHeld
		bad := negative == (c.Status == metav1.ConditionTrue)
		if now == nil || old == nil && negative && !bad {
			continue
		}
		c.Message = c.Type + ": " + c.Message
		status.Event(r.Recorder, o, "Register", c, bad)
	}
}

// RegisterMetrics registers when the account last answered a heartbeat.
func (r *Registration) RegisterMetrics(registry prometheus.Registerer) error {
	return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead_operator",
		Name: "heartbeat_timestamp_seconds",
		Help: "When the account last confirmed the registration of this installation to this manager; " +
			"0 = never, as in one that does not lead.",
	}, func() float64 { return float64(r.confirmed.Load()) }))
}

// digits differ between attempts in the messages of a failing network: mostly ports.
var digits = regexp.MustCompile(`[0-9]+`)

// setEdgeCondition writes whether the forwarders have a session with the edge, and to how many
// replicas of the service they are connected.
func (r *Registration) setEdgeCondition(s *v1alpha1.KubernetesOperatorStatus, generation int64) {
	if r.Forwarders == nil {
		s.Legs = ""
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionEdgeReachable)
		return
	}
	if known, legs := r.Forwarders.Legs(); known {
		s.Legs = legs
	}
	known, problem := r.Forwarders.EdgeStatus()
	if !known {
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionEdgeReachable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOnline,
		Message: "all forwarders have a session with the service's edge",
	}
	if problem != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonUnreachable, problem
		last := meta.FindStatusCondition(s.Conditions, c.Type)
		if last != nil && digits.ReplaceAllString(last.Message, "") == digits.ReplaceAllString(problem, "") {
			c.Message = last.Message
		}
	}
	r.setCondition(s, generation, c)
}

// setOptionalCondition writes the condition of a part; nil: the installation does without.
func (r *Registration) setOptionalCondition(
	s *v1alpha1.KubernetesOperatorStatus, generation int64, typ string, part Part,
) {
	if part == nil {
		meta.RemoveStatusCondition(&s.Conditions, typ)
	} else if c := part.Condition(); c != nil {
		r.setCondition(s, generation, *c)
	}
}

// RecordProjectedForwarders writes the status's ProjectedForwarders. It is safe for concurrent use.
func (r *Registration) RecordProjectedForwarders(ctx context.Context, addresses []string) error {
	r.mu.Lock()
	r.projectedForwarders = &addresses
	r.mu.Unlock()
	return r.Refresh(ctx)
}

// RecordedProjectedForwarders reads the status's ProjectedForwarders from the API server.
func (r *Registration) RecordedProjectedForwarders(ctx context.Context) ([]string, error) {
	status, err := r.recorded(ctx)
	return status.ProjectedForwarders, err
}

// RecordNetworkPolicies writes the status's NetworkPolicies, nil for none, and the condition
// NetworkPoliciesWritten. It is safe for concurrent use.
func (r *Registration) RecordNetworkPolicies(ctx context.Context, written *v1alpha1.WrittenNetworkPolicies) error {
	r.mu.Lock()
	r.networkPolicies = &written
	r.mu.Unlock()
	return r.Refresh(ctx)
}

// RecordedNetworkPolicies reads the status's NetworkPolicies from the API server.
func (r *Registration) RecordedNetworkPolicies(ctx context.Context) (*v1alpha1.WrittenNetworkPolicies, error) {
	status, err := r.recorded(ctx)
	return status.NetworkPolicies, err
}

// recorded reads the status from the API server; it is empty without the object.
func (r *Registration) recorded(ctx context.Context) (v1alpha1.KubernetesOperatorStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: r.Anchors.Installation.Namespace, Name: r.Anchors.Installation.Release}
	var object v1alpha1.KubernetesOperator
	if err := r.Live.Get(ctx, key, &object); client.IgnoreNotFound(err) != nil {
		return v1alpha1.KubernetesOperatorStatus{}, fmt.Errorf("reading KubernetesOperator %s: %w", key, err)
	}
	return object.Status, nil
}

// setLatest remembers the object that was written in place of the version replaced, empty if there
// was none.
func (r *Registration) setLatest(replaced string, written *v1alpha1.KubernetesOperator, err error) {
	const remembered = 8
	if err != nil {
		r.latest, r.replaced = nil, nil
		return
	}
	r.latest = written.DeepCopy()
	if replaced == "" {
		r.replaced = nil
		return
	}
	r.replaced = append(r.replaced[max(0, len(r.replaced)-remembered):], replaced)
}
