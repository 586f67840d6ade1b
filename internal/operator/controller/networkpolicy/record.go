// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"maps"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
)

// reliedOnRetry is the delay before it is looked again whether forwarders rely on policies that are
// to be deleted.
const reliedOnRetry = time.Second

// Recorder keeps of which objects the policies are written, where forwarders read it: those that
// leave the decision to NetworkPolicies deny what differs. *registration.Registration implements it.
type Recorder interface {
	// RecordNetworkPolicies writes it; nil: of none.
	RecordNetworkPolicies(context.Context, *v1alpha1.WrittenNetworkPolicies) error
	// RecordedNetworkPolicies reads what was written last, by this process or another one.
	RecordedNetworkPolicies(context.Context) (*v1alpha1.WrittenNetworkPolicies, error)
}

// record is what the Recorder has. Only Reconcile uses it.
type record struct {
	known   bool
	written *v1alpha1.WrittenNetworkPolicies
}

// revokeChanged records, before policies are written, that those of namespaces whose objects have
// changed are not.
func (r *Reconciler) revokeChanged(ctx context.Context, next *v1alpha1.WrittenNetworkPolicies) error {
	if !r.record.known {
		written, err := r.Recorder.RecordedNetworkPolicies(ctx)
		if err != nil {
			return err
		}
		r.record = record{true, written}
	}
	return r.writeRecord(ctx, unchanged(r.record.written, next))
}

// writeRecord records what is written, if it differs from the last record.
func (r *Reconciler) writeRecord(ctx context.Context, written *v1alpha1.WrittenNetworkPolicies) error {
	if r.record.known && equality.Semantic.DeepEqual(r.record.written, written) {
		return nil
	}
	r.record.known = false
	if err := r.Recorder.RecordNetworkPolicies(ctx, written); err != nil {
		return err
	}
	r.record = record{true, written}
	return nil
}

// unchanged returns what holds before and after: nil if nothing does.
func unchanged(before, after *v1alpha1.WrittenNetworkPolicies) *v1alpha1.WrittenNetworkPolicies {
	if before == nil || after == nil || before.DefaultAccess != after.DefaultAccess {
		return nil
	}
	both := &v1alpha1.WrittenNetworkPolicies{DefaultAccess: after.DefaultAccess, Namespaces: map[string]string{}}
	for _, digests := range []map[string]string{before.Namespaces, after.Namespaces} {
		for namespace, digest := range digests {
			if before.Namespaces[namespace] != after.Namespaces[namespace] {
				digest = v1alpha1.NetworkPoliciesNotWritten
			}
			both.Namespaces[namespace] = digest
		}
	}
	return both
}

// written returns what the policies are written of once a pass over the objects has succeeded.
func (a Access) written() *v1alpha1.WrittenNetworkPolicies {
	return &v1alpha1.WrittenNetworkPolicies{DefaultAccess: string(a.rules.Default()), Namespaces: a.rules.Digests()}
}

// without returns what is written after these failures. A failure of the base policy, or of one
// that is to go, can leave any port open; one of a port's policy those of its namespace.
func without(
	written *v1alpha1.WrittenNetworkPolicies, found failures, restricted []restrictedPort,
) *v1alpha1.WrittenNetworkPolicies {
	if found.base != nil || found.others != nil {
		return nil
	}
	next := &v1alpha1.WrittenNetworkPolicies{DefaultAccess: written.DefaultAccess,
		Namespaces: maps.Clone(written.Namespaces)}
	for _, p := range restricted {
		if found.ports[p.target] != nil {
			namespace := endpointaccess.TargetOf(p.hostname, 0).Namespace
			next.Namespaces[namespace] = v1alpha1.NetworkPoliciesNotWritten
		}
	}
	return next
}

// disable deletes all policies, once no forwarder relies on them.
func (r *Reconciler) disable(ctx context.Context, live map[string]*networkingv1.NetworkPolicy) (ctrl.Result, error) {
	if len(live) == 0 {
		return ctrl.Result{}, nil
	}
	if err := r.writeRecord(ctx, nil); err != nil {
		return ctrl.Result{}, err
	}
	if r.Forwarders != nil && r.Forwarders.NetworkPoliciesReliedOn() {
		return ctrl.Result{RequeueAfter: reliedOnRetry}, nil
	}
	return result(r.removeExcept(ctx, live, nil))
}
