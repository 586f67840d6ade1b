// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// Condition types of a ServiceExport.
const (
	conditionValid    = string(v1beta1.ServiceExportConditionValid)
	conditionReady    = string(v1beta1.ServiceExportConditionReady)
	conditionConflict = string(v1beta1.ServiceExportConditionConflict)

	reasonPending = string(v1beta1.ServiceExportReasonPending)
)

// report writes the status if it differs, with an event for each condition that says something new.
func (r *Reconciler) report(
	ctx context.Context, o *v1beta1.ServiceExport, found *resolution, out applied,
) (ctrl.Result, error) {
	name := client.ObjectKeyFromObject(o)
	result := ctrl.Result{RequeueAfter: out.recheck}
	if out.err != nil {
		result.RequeueAfter = r.delay(name, out.err)
	} else {
		r.backoff.Forget(name)
	}
	r.noteFailed(name, found, out.err)
	next := o.DeepCopy()
	if wait := r.setConditions(next, found, out.err); wait > 0 {
		if result.RequeueAfter == 0 || wait < result.RequeueAfter {
			result.RequeueAfter = wait
		}
		if len(o.Status.Conditions) == 0 {
			return result, nil // its first status has the answers to the binds
		}
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if retry, err := status.Write(ctx, r.Client, "ServiceExport", o, next); retry > 0 || err != nil {
		return ctrl.Result{RequeueAfter: retry}, err
	}
	r.emitEvents(next, o.Status.Conditions)
	return result, nil
}

// delay returns how long the next attempt for an export waits.
func (r *Reconciler) delay(name types.NamespacedName, err error) time.Duration {
	if account.CodeOf(err) == account.CodeInUse {
		return claimRetry + rand.N(claimRetry)
	}
	return r.backoff.Delay(name, err)
}

// setConditions sets all conditions. wait > 0 means that the answer to a bind is due by then.
func (r *Reconciler) setConditions(o *v1beta1.ServiceExport, found *resolution, applyErr error) (wait time.Duration) {
	name := client.ObjectKeyFromObject(o)
	valid := status.Condition(conditionValid, string(v1beta1.ServiceExportReasonValid),
		fmt.Sprintf("Service %s can be exported", name), found.invalid)
	if found.invalid != nil {
		status.Set(&o.Status.Conditions, o.Generation, time.Now(), valid, metav1.Condition{Type: conditionReady,
			Status: metav1.ConditionFalse, Reason: reasonPending, Message: notExported(found.invalid, applyErr)})
		meta.RemoveStatusCondition(&o.Status.Conditions, conditionConflict)
		meta.RemoveStatusCondition(&o.Status.Conditions, ConditionCarried)
		return 0
	}
	p, unsure, wait := r.notReady(name, found, applyErr)
	ready := status.Condition(conditionReady, string(v1beta1.ServiceExportReasonExported),
		r.exportedMessage(name, found), p)
	last := meta.FindStatusCondition(o.Status.Conditions, conditionReady)
	if unsure && last != nil && last.Reason != reasonPending && last.ObservedGeneration == o.Generation {
		ready = *last // as the last holder of the Lease left it
	}
	status.Set(&o.Status.Conditions, o.Generation, time.Now(),
		append([]metav1.Condition{valid, ready}, r.mergedConditions(name, found)...)...)
	return wait
}

// notExported returns the message of Ready for an export without a Service.
func notExported(invalid *status.Problem, removal error) string {
	if removal != nil {
		return invalid.Message + "; what was exported cannot be taken back yet: " + removal.Error()
	}
	return "nothing is exported: " + invalid.Message
}

func (r *Reconciler) exportedMessage(name types.NamespacedName, found *resolution) string {
	text := fmt.Sprintf("clusters of the account import %s.%s from this cluster, %s", name.Name, name.Namespace,
		found.id)
	if other := r.ids.pending(); other != "" {
		text += fmt.Sprintf("; its new id %q counts when its last ServiceExport is deleted", account.Shorten(other))
	}
	return text
}

// mergedConditions returns the conditions that depend on the exports of all clusters, without
// Conflict while they are not known.
func (r *Reconciler) mergedConditions(name types.NamespacedName, found *resolution) (all []metav1.Condition) {
	var exports []clusterset.Export
	for _, one := range r.records.of(name) {
		exports = append(exports, one.Export)
	}
	var merged *clusterset.Import
	if len(exports) > 0 {
		i := clusterset.Merge(exports)
		merged = &i
	}
	if known, _ := r.records.state(); known {
		c := metav1.Condition{Type: conditionConflict, Status: metav1.ConditionFalse,
			Reason: string(v1beta1.ServiceExportReasonNoConflicts), Message: "the clusters that export it agree"}
		if merged != nil {
			if reason, message := merged.Conflict(); reason != "" {
				c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
			}
		}
		all = append(all, c)
	}
	return append(all, carried(found, merged))
}

// notReady returns why the Service is not exported, nil if it is. unsure means that an answer of
// the service is missing; wait > 0 is by when it is due.
func (r *Reconciler) notReady(
	name types.NamespacedName, found *resolution, applyErr error,
) (p *status.Problem, unsure bool, wait time.Duration) {
	const pending, failed = v1beta1.ServiceExportReasonPending, v1beta1.ServiceExportReasonFailed
	unreachable := r.Ports.Unreachable()
	switch {
	case found.refused != nil:
		return found.refused, false, 0
	case unreachable != "":
		return status.Problemf(pending, "the exporter has no session with the service: %s", unreachable), false, 0
	case applyErr != nil && accountclient.Unanswered(applyErr):
		return status.Problemf(pending, "the account has not taken the export yet: %s", applyErr), true, 0
	case applyErr != nil:
		return status.Problemf(failed, "the account refuses the export: %s",
			accountclient.Message(applyErr, exportFields.Replace)), false, 0
	}
	for _, port := range slices.Sorted(maps.Keys(found.ports)) {
		switch state := r.Ports.State(name, port); {
		case state.Bound:
		case state.Reason != "":
			return status.Problemf(failed, "tcp port %d is not carried: %s", port, state.Message), false, 0
		default:
			p, unsure = status.Problemf(pending, "tcp port %d is being bound", port), true
			wait = max(wait, answerWait-time.Since(state.Asked))
		}
	}
	return p, unsure, wait
}

// noteFailed remembers whether the record is as it should be.
func (r *Reconciler) noteFailed(name types.NamespacedName, found *resolution, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.failed, name); err != nil || found.invalid != nil || found.refused != nil {
		r.failed[name] = true
	}
}

// emitEvents emits an event for each condition whose status or reason has changed. What is as it
// should be from the beginning, and an export that waits, get none.
func (r *Reconciler) emitEvents(o *v1beta1.ServiceExport, before []metav1.Condition) {
	for _, typ := range []string{conditionValid, conditionReady, conditionConflict, ConditionCarried} {
		was, is := status.Changed(before, o.Status.Conditions, typ)
		if is == nil {
			continue
		}
		isGood := (is.Status == metav1.ConditionTrue) != (typ == conditionConflict)
		if is.Reason == reasonPending || isGood && was == nil && typ != conditionReady {
			continue
		}
		said := metav1.Condition{Reason: eventReason(is), Message: eventMessage(is.Message)}
		status.Event(r.Recorder, o, "Export", said, !isGood)
	}
}

// ConditionCarried is True when every port of the export can be called through its import.
const ConditionCarried = "fairlead.dev/Carried"

// Reasons of ConditionCarried.
const (
	ReasonCarried     = "Carried"
	ReasonPartial     = "PartlyCarried" // some ports are not carried
	ReasonNotCarried  = "NotCarried"    // no port is carried
	ReasonNoPorts     = "NoPorts"
	ReasonUnusable    = "EndpointsNotUsed" // no connection reaches an endpoint of the Service
	ReasonTypeIgnored = "TypeConflict"     // an older export is of another type
)

// carried returns the ConditionCarried of an export. merged is the import that the account made of
// all clusters' exports; nil while it is not known.
func carried(found *resolution, merged *clusterset.Import) metav1.Condition {
	no := func(reason, format string, args ...any) metav1.Condition {
		return status.Condition(ConditionCarried, "", "", status.Problemf(reason, format, args...))
	}
	s := found.service
	switch {
	case len(s.Ports) == 0:
		return no(ReasonNoPorts, "the Service has no ports")
	case merged != nil && merged.Spec.Type != s.Type:
		return no(ReasonTypeIgnored, "the import is of type %s, as the oldest export, of cluster %s: nothing of this "+
			"cluster is carried", merged.Spec.Type, merged.Exports[0].ClusterID)
	}
	var missing []string
	count := 0
	for _, p := range s.Ports {
		switch {
		case p.Protocol != string(corev1.ProtocolTCP):
			missing = append(missing, portName(p)+" is listed, but only TCP is carried")
		case merged != nil && found.id != "" && !serves(merged, found.id, p):
			missing = append(missing, portName(p)+" is not in the import, as an older export has another port of its "+
				"name or number")
		default:
			count++
		}
	}
	if found.podsLeftOut > 0 {
		missing = append(missing, fmt.Sprintf("%d pods are left out: an export has at most %d and %d ports of them, "+
			"and of two that need one port of the account the first", found.podsLeftOut, account.MaxExportPods,
			account.MaxExportPorts))
	}
	switch {
	case count == 0:
		return no(ReasonNotCarried, "no port is carried: %s", strings.Join(missing, "; "))
	case found.dialing != "" && !found.ready:
		return no(ReasonUnusable, "no endpoint of the Service is used: %s", found.dialing)
	case len(missing) > 0:
		return no(ReasonPartial, "%s", strings.Join(missing, "; "))
	}
	return status.Condition(ConditionCarried, ReasonCarried, "all ports are carried", nil)
}

// serves reports whether the port is in the import as one that the cluster serves. A cluster whose
// export is not in the import yet serves all.
func serves(merged *clusterset.Import, id string, p account.ServiceExportPort) bool {
	if !slices.ContainsFunc(merged.Exports, func(e clusterset.Export) bool { return e.ClusterID == id }) {
		return true
	}
	return slices.ContainsFunc(merged.Ports(id), func(q account.ServiceExportPort) bool {
		return p.Name == q.Name && p.Protocol == q.Protocol && p.Port == q.Port
	})
}

// portName returns a port as messages have it: "udp/53 (dns)".
func portName(p account.ServiceExportPort) string {
	text := fmt.Sprintf("%s/%d", strings.ToLower(p.Protocol), p.Port)
	if p.Name != "" {
		text += " (" + p.Name + ")"
	}
	return text
}

// exportFields are the fields of the objects, by those of the account's API.
var exportFields = strings.NewReplacer("service_export.labels", "spec.exportedLabels",
	"service_export.annotations", "spec.exportedAnnotations", "service_export.ports", "the Service's spec.ports",
	"service_export", "the export")

// Limits of the API server for events, in bytes.
const (
	maxEventReason  = 128
	maxEventMessage = 1024
)

// eventReason returns the reason of an event about a condition. Reasons of Conflict are joined by
// commas, which a name in CamelCase cannot have.
func eventReason(c *metav1.Condition) string {
	reason := strings.ReplaceAll(c.Reason, ",", "And")
	return reason[:min(len(reason), maxEventReason)]
}

func eventMessage(message string) string {
	if len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage-len("…")], "") + "…"
}
