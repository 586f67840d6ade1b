// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// report writes the status once, where it differs, and tells of a new reason by an event.
func (r *Reconciler) report(ctx context.Context, b *v1alpha1.BoundEndpoint, now outcome, found *problem) (ctrl.Result, error) {
	next := b.DeepCopy()
	next.Status = r.status(b, now, found)
	if !equality.Semantic.DeepEqual(b.Status, next.Status) {
		if err := r.Client.Status().Update(ctx, next); apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return ctrl.Result{RequeueAfter: again}, nil
		} else if err != nil {
			return ctrl.Result{}, fmt.Errorf("writing the status of BoundEndpoint %s: %w", b.Name, err)
		}
		r.tell(next, b.Status.Conditions)
	}
	if found == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: found.after}, found.err
}

// tell emits an event when the reason of Ready, or of ServicesReady beneath it, has changed. That a new object is ready at once is no news.
func (r *Reconciler) tell(b *v1alpha1.BoundEndpoint, before []metav1.Condition) {
	for _, typ := range []string{v1alpha1.ConditionServicesReady, v1alpha1.ConditionReady} {
		old, now := meta.FindStatusCondition(before, typ), meta.FindStatusCondition(b.Status.Conditions, typ)
		if old != nil && old.Reason == now.Reason || old == nil && now.Status == metav1.ConditionTrue {
			continue
		}
		kind := corev1.EventTypeNormal
		if now.Status == metav1.ConditionFalse && now.Reason != v1alpha1.ReasonReleased {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(b, nil, kind, now.Reason, "Project", "%s", now.Message)
		return
	}
}

// status computes the whole status from what was found.
func (r *Reconciler) status(b *v1alpha1.BoundEndpoint, now outcome, found *problem) v1alpha1.BoundEndpointStatus {
	s := *b.Status.DeepCopy()
	if now.upstream != nil {
		s.ClusterIP = now.upstream.Spec.ClusterIP
	}
	s.Services = now.services
	s.Target = upstreamName(b.Spec.ProjectionID) + "." + r.Layout.Installation.Namespace
	s.EndpointCount = int32(len(b.Spec.Endpoints))
	bound, leaving := urls(b)
	s.URLs = strings.Join(bound, ",")
	services := servicesReady(b, found)
	reachable := r.reachable(b, leaving)
	for _, c := range []metav1.Condition{services, reachable, ready(s.URLs, services, reachable)} {
		c.ObservedGeneration = b.Generation
		c.LastTransitionTime = metav1.NewTime(r.Now())
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

// urls returns the URLs that the Services have, and those of them that no endpoint has any longer.
func urls(b *v1alpha1.BoundEndpoint) (bound, leaving []string) {
	for _, p := range b.Spec.Ports {
		if p.State == v1alpha1.StateReleased {
			continue
		}
		url := account.EndpointURL{Scheme: p.Scheme, Host: b.Name, Port: int(p.Port)}.String()
		bound = append(bound, url)
		if p.RemoveAfter != nil {
			leaving = append(leaving, url)
		}
	}
	return bound, leaving
}

func servicesReady(b *v1alpha1.BoundEndpoint, found *problem) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionServicesReady, Status: metav1.ConditionFalse}
	switch {
	case found != nil:
		c.Reason, c.Message = found.reason, found.message
	case b.Spec.State == v1alpha1.StateReleased:
		c.Reason, c.Message = v1alpha1.ReasonReleased, "both Services are deleted; the target ports rest before they are used again"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonProjected
		c.Message = fmt.Sprintf("Service %s/%s leads to the forwarders", b.Spec.Namespace, b.Spec.Service)
	}
	return c
}

// reachable says what the account's watch says. Until it has said anything, the last word holds.
func (r *Reconciler) reachable(b *v1alpha1.BoundEndpoint, leaving []string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse}
	known, _, offline := r.Account.Hostname(b.Name)
	offline = slices.Concat(offline, leaving)
	switch {
	case b.Spec.State == v1alpha1.StateReleased:
		c.Reason, c.Message = v1alpha1.ReasonReleased, "the account no longer has the endpoint"
	case !known:
		if last := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReachable); last != nil {
			return *last
		}
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonServiceUnreachable, "the account has not been read yet"
	case len(offline) > 0:
		c.Reason, c.Message = v1alpha1.ReasonAgentOffline, "no agent is connected for "+strings.Join(offline, ", ")
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonOnline, "every URL has an endpoint online"
	}
	return c
}

// ready is the first hop that is broken.
func ready(urls string, hops ...metav1.Condition) metav1.Condition {
	for _, hop := range hops {
		if hop.Status != metav1.ConditionTrue {
			hop.Type = v1alpha1.ConditionReady
			return hop
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: "pods reach " + urls,
	}
}
