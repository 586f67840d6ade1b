// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// Forwarders reports the state of the forwarders for a hostname, from memory;
// *forwarderstatus.Reader implements it.
type Forwarders interface {
	// Report returns the forwarders' state for a hostname with the given target ports.
	Report(hostname string, targetPorts []int) forwarderstatus.Report
	// NotifyOnChange requests one reconciliation of the hostname as soon as its Report changes;
	// CancelNotify cancels that.
	NotifyOnChange(hostname string)
	CancelNotify(hostname string)
}

// forwarderReport returns the forwarders' state. For a new spec it requests a notification.
func (w *statusWriter) forwarderReport(b *v1alpha1.BoundEndpoint) forwarderstatus.Report {
	if isNewSpec(b) {
		w.forwarders.NotifyOnChange(b.Name)
	}
	var ports []int
	for _, p := range b.Spec.Ports {
		if p.State != v1alpha1.StateReleased {
			ports = append(ports, int(p.TargetPort))
		}
	}
	return w.forwarders.Report(b.Name, ports)
}

// isNewSpec reports whether the status does not reflect this spec yet, so that forwarders may not
// have seen it either.
func isNewSpec(b *v1alpha1.BoundEndpoint) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	return b.Spec.State != v1alpha1.StateReleased && (c == nil || c.ObservedGeneration != b.Generation)
}

// accountUnread is the message of an endpoint about which the account has not been asked.
const accountUnread = "the account has not been read yet"

// reachableCondition combines the state of the forwarders and of the account's endpoints. Until
// they are known, the last condition stays; what forwarders report against it needs no account.
func (w *statusWriter) reachableCondition(
	b *v1alpha1.BoundEndpoint, removing []string, report forwarderstatus.Report,
) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse}
	known, _, offline := w.account.Availability(b.Name)
	last := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case b.Spec.State == v1alpha1.StateReleased:
		c.Reason, c.Message = v1alpha1.ReasonReleased, "the account no longer has the endpoint"
	case !report.Known && last != nil:
		return *last
	case !report.Known && !known:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonServiceUnreachable, accountUnread
	case !report.Known:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonServiceUnreachable,
			"the forwarders have not reported yet"
	case report.Forwarders == 0:
		c.Reason, c.Message = v1alpha1.ReasonServiceUnreachable, "no forwarder is running"
	case report.NotReporting == report.Forwarders:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonServiceUnreachable
		c.Message = "no forwarder reports its status: the manager must be able to reach port 8081 of their pods"
	case len(report.Failures) > 0:
		c.Reason, c.Message = v1alpha1.ReasonListenerFailed, listenerFailures(report.Failures)
	case report.Sessions == 0:
		c.Reason = v1alpha1.ReasonServiceUnreachable
		c.Message = "no forwarder has a session with the service's edge: see EdgeReachable of KubernetesOperator " +
			w.layout.Installation.Release
	case !known && last != nil && (last.Status == metav1.ConditionTrue || last.Reason == v1alpha1.ReasonAgentOffline ||
		last.Reason == v1alpha1.ReasonEndpointRemoved):
		return *last
	case !known:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonServiceUnreachable, accountUnread
	case len(offline) > 0:
		c.Reason, c.Message = v1alpha1.ReasonAgentOffline, offlineMessage(b, offline)
	case len(removing) > 0:
		c.Reason = v1alpha1.ReasonEndpointRemoved
		c.Message = "the account no longer has an endpoint for " + strings.Join(removing, ", ")
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonOnline, "every URL has an endpoint online"
	}
	return c
}

func offlineMessage(b *v1alpha1.BoundEndpoint, urls []string) string {
	all := strings.Join(urls, ", ")
	if b.Spec.Cluster != "" {
		return fmt.Sprintf(path.NoExporterOfCluster, b.Spec.Cluster, all)
	}
	return fmt.Sprintf(path.NoAgent, all)
}

// listenerFailures describes the first ports that forwarders do not listen on.
func listenerFailures(failures []forwarderstatus.Failure) string {
	const maxShown = 3
	var parts []string
	for i, f := range failures {
		if i == maxShown {
			parts = append(parts, fmt.Sprintf("and %d more", len(failures)-maxShown))
			break
		}
		reason := cmp.Or(f.Error, "it has not received this object yet")
		parts = append(parts, fmt.Sprintf("forwarder %s does not listen on port %d: %s", f.Pod, f.Port, reason))
	}
	return strings.Join(parts, "; ")
}

// forwarderCount returns how many forwarders listen, of how many, such as 2/3, and whether all do.
// It does not change during a rollout in which all running forwarders listen.
func forwarderCount(b *v1alpha1.BoundEndpoint, report forwarderstatus.Report) (count string, all bool) {
	last := &b.Status
	switch {
	case b.Spec.State == v1alpha1.StateReleased:
		return "", false
	case !report.Known, report.Complete() && !report.Settled && last.AllForwardersListen:
		return last.Forwarders, last.AllForwardersListen
	}
	return fmt.Sprintf("%d/%d", report.Listening, report.Forwarders), report.Complete()
}
