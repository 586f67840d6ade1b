// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// AnnotationDerivedService holds, on a ServiceImport of type ClusterSetIP, the name of its derived
// Service.
const AnnotationDerivedService = "multicluster.kubernetes.io/derived-service"

// ensureImport returns the ServiceImport, which it creates if there is none: without IPs, as the
// derived Service that has them is owned by it.
func (r *Reconciler) ensureImport(
	ctx context.Context, live, desired *mcsv1beta1.ServiceImport,
) (*mcsv1beta1.ServiceImport, *status.Problem) {
	key := client.ObjectKeyFromObject(desired)
	if live == nil {
		made := desired.DeepCopy()
		err := r.Client.Create(ctx, made)
		switch {
		case err == nil:
			r.Log.Info("Created ServiceImport", "import", key.String())
			return made, nil
		case !apierrors.IsAlreadyExists(err):
			return nil, problemOf(fmt.Errorf("creating ServiceImport %s: %w", key, err))
		}
		live = &mcsv1beta1.ServiceImport{} // the informer has not seen it yet
		if err := r.Live.Get(ctx, key, live); err != nil {
			return nil, problemOf(fmt.Errorf("reading ServiceImport %s: %w", key, err))
		}
	}
	switch {
	case !r.isOurs(live, desired.OwnerReferences):
		return nil, conflict("ServiceImport", key)
	case live.DeletionTimestamp != nil:
		return nil, status.Pending()
	}
	return live, nil
}

// isOurs reports whether this installation made the object. One that lost a mark still has our
// anchor as its owner, and gets it back; a copy has the marks of another object.
func (r *Reconciler) isOurs(o metav1.Object, owners []metav1.OwnerReference) bool {
	own := r.Anchors.Installation
	return own.Owns(o) || own.Marked(o) && !own.Copied(o) && slices.ContainsFunc(o.GetOwnerReferences(),
		func(owner metav1.OwnerReference) bool { return slices.Contains(owners, owner) })
}

// updateImport makes the ServiceImport as desired, with the addresses of the derived Service; nil =
// it has none, and setFamilies writes the families. Labels and annotations are exactly the exported
// ones and our marks, so that one which is no longer exported goes.
func (r *Reconciler) updateImport(
	ctx context.Context, live, desired *mcsv1beta1.ServiceImport, derived *corev1.Service,
) (*mcsv1beta1.ServiceImport, *status.Problem) {
	next := live.DeepCopy()
	next.Labels, next.Annotations = desired.Labels, desired.Annotations
	next.OwnerReferences = desired.OwnerReferences
	next.Spec = *desired.Spec.DeepCopy()
	next.Spec.IPFamilies = live.Spec.IPFamilies
	if derived != nil {
		next.Spec.IPs = slices.Clone(derived.Spec.ClusterIPs)
		next.Spec.IPFamilies = slices.Clone(derived.Spec.IPFamilies)
	}
	return r.writeImport(ctx, live, next)
}

// setFamilies gives a headless ServiceImport the address families of its pods' Services. It has the
// former ones while there are none.
func (r *Reconciler) setFamilies(
	ctx context.Context, live *mcsv1beta1.ServiceImport, families []corev1.IPFamily,
) (*mcsv1beta1.ServiceImport, *status.Problem) {
	next := live.DeepCopy()
	if len(families) > 0 {
		next.Spec.IPFamilies = families
	}
	return r.writeImport(ctx, live, next)
}

// writeImport writes next if it differs, and returns what is there then.
func (r *Reconciler) writeImport(
	ctx context.Context, live, next *mcsv1beta1.ServiceImport,
) (*mcsv1beta1.ServiceImport, *status.Problem) {
	if equality.Semantic.DeepEqual(live, next) {
		return live, nil
	}
	if err := r.Client.Update(ctx, next); err != nil {
		return live, problemOf(fmt.Errorf("updating ServiceImport %s: %w", client.ObjectKeyFromObject(live), err))
	}
	return next, nil
}

// reportStatus writes the status of the ServiceImport if it differs: each cluster that exports the
// Service, and whether pods reach it. live is nil if there is no ServiceImport of ours.
func (r *Reconciler) reportStatus(
	ctx context.Context, live *mcsv1beta1.ServiceImport, i *clusterset.Import, pods podCount, found *status.Problem,
) *status.Problem {
	if live == nil {
		return nil
	}
	next := live.DeepCopy()
	next.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
	next.Status.Clusters = nil
	for _, e := range i.Exports {
		next.Status.Clusters = append(next.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: e.ClusterID})
	}
	slices.SortFunc(next.Status.Clusters, func(a, b mcsv1beta1.ClusterStatus) int {
		return cmp.Compare(a.Cluster, b.Cluster)
	})
	c := r.readyCondition(i, pods, found)
	if found == nil || !found.Quiet || meta.FindStatusCondition(next.Status.Conditions, c.Type) == nil {
		status.Set(&next.Status.Conditions, live.Generation, time.Now(), c)
	}
	retry, err := status.Write(ctx, r.Client, mcsv1beta1.ServiceImportKindName, live, next)
	if retry > 0 {
		return &status.Problem{Quiet: true, RetryAfter: retry}
	}
	return problemOf(err)
}

// readyCondition returns the condition Ready of a ServiceImport.
func (r *Reconciler) readyCondition(i *clusterset.Import, pods podCount, found *status.Problem) metav1.Condition {
	c := metav1.Condition{Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionFalse}
	switch {
	case found != nil && !found.Quiet:
		c.Reason, c.Message = found.Reason, found.Message
	case found != nil:
		c.Reason, c.Message = string(mcsv1beta1.ServiceImportReasonPending), "the forwarders' addresses are awaited"
	case i.Spec.Type == account.ExportHeadless:
		if pods.imported == 0 {
			c.Reason, c.Message = string(mcsv1beta1.ServiceImportReasonPending), "no cluster exports a pod of it yet"
			break
		}
		c.Status, c.Reason = metav1.ConditionTrue, string(mcsv1beta1.ServiceImportReasonReady)
		c.Message = fmt.Sprintf("pods reach each of its %d pods as HOSTNAME.CLUSTER.%s.%s.svc.%s", pods.imported,
			i.Name, i.Namespace, r.Domain)
		if pods.leftOut > 0 {
			c.Status, c.Reason = metav1.ConditionFalse, "PodsLeftOut"
			c.Message += fmt.Sprintf("; %d more are left out: a namespace can have %d", pods.leftOut, maxPods)
		}
	default:
		c.Status, c.Reason = metav1.ConditionTrue, string(mcsv1beta1.ServiceImportReasonReady)
		c.Message = fmt.Sprintf("pods reach it as %s.%s.svc.%s", i.Name, i.Namespace, r.Domain)
	}
	return c
}

// remove deletes the ServiceImport and what belongs to it, as far as it is ours: the name that pods
// look up first.
func (r *Reconciler) remove(
	ctx context.Context, key types.NamespacedName, live *mcsv1beta1.ServiceImport,
) *status.Problem {
	if live != nil && r.Anchors.Installation.Owns(live) && live.DeletionTimestamp == nil {
		if err := owned.Delete(ctx, r.Client, live); err != nil {
			return problemOf(fmt.Errorf("deleting ServiceImport %s: %w", key, err))
		}
		r.Log.Info("Deleted ServiceImport", "import", key.String())
	}
	if found := first(r.removeDerived(ctx, key), r.removePods(ctx, key, nil)); found != nil {
		return found
	}
	r.Addresses.Forget(key.String())
	r.objects.Forget(key.String())
	return nil
}

// newImport returns the desired ServiceImport, without IPs.
func newImport(
	own installation.Installation, i *clusterset.Import, owners []metav1.OwnerReference,
) *mcsv1beta1.ServiceImport {
	s := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, Labels: exportedLabels(i.Spec.Labels),
			Annotations:     exportedAnnotations(i.Spec.Annotations),
			OwnerReferences: owners},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ServiceImportType(i.Spec.Type),
			Ports:                 []mcsv1beta1.ServicePort{},
			SessionAffinity:       corev1.ServiceAffinity(i.Spec.SessionAffinity),
			SessionAffinityConfig: affinityConfig(i.Spec.SessionAffinitySeconds)},
	}
	for _, p := range i.Spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, mcsv1beta1.ServicePort{Name: p.Name, Port: p.Port,
			Protocol: corev1.Protocol(p.Protocol), AppProtocol: orNil(p.AppProtocol)})
	}
	if i.Spec.InternalTrafficPolicy != "" {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy(i.Spec.InternalTrafficPolicy))
	}
	s.Spec.TrafficDistribution = orNil(i.Spec.TrafficDistribution)
	if i.Spec.Type == account.ExportClusterSetIP {
		s.Annotations[AnnotationDerivedService] = DerivedName(client.ObjectKeyFromObject(s))
	}
	own.Mark(s)
	return s
}

// exportedLabels returns the labels that a ServiceImport can have: those of another cluster may
// break the API server's rules, or be ours.
func exportedLabels(exported map[string]string) map[string]string {
	kept := exportedAnnotations(exported)
	for name, value := range kept {
		if len(validation.IsQualifiedName(name)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			delete(kept, name)
		}
	}
	return kept
}

// exportedAnnotations does so for annotations.
func exportedAnnotations(exported map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range exported {
		ours := strings.HasPrefix(name, "bindings.fairlead.dev/") || name == AnnotationDerivedService
		if !ours && len(validation.IsQualifiedName(strings.ToLower(name))) == 0 {
			kept[name] = value
		}
	}
	return kept
}

func affinityConfig(seconds *int32) *corev1.SessionAffinityConfig {
	if seconds == nil {
		return nil
	}
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(*seconds)}}
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
