// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// ensureDerived makes the derived Service as desired, but for ports that go: they stay for now. A new
// one gets the addresses that the ServiceImport had unless they have been given to another Service.
func (r *Reconciler) ensureDerived(
	ctx context.Context, desired *corev1.Service, owner *mcsv1beta1.ServiceImport,
) (*corev1.Service, *status.Problem) {
	key := client.ObjectKeyFromObject(desired)
	if ips := owner.Spec.IPs; len(ips) > 0 {
		desired.Spec.ClusterIP, desired.Spec.ClusterIPs = ips[0], slices.Clone(ips)
	}
	live := &corev1.Service{}
	err := r.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if live, _, err = r.objects.CreateService(ctx, desired); err != nil {
			return nil, problemOf(fmt.Errorf("creating Service %s: %w", key, err))
		}
	}
	switch {
	case err != nil:
		return nil, problemOf(fmt.Errorf("reading Service %s: %w", key, err))
	case !r.Anchors.Installation.Owns(live) && !slices.Contains(live.OwnerReferences, importReference(owner)):
		return nil, conflict("Service", key)
	case live.DeletionTimestamp != nil:
		return nil, status.Pending()
	case live.Spec.ClusterIP == corev1.ClusterIPNone || live.Spec.ClusterIP == "":
		return nil, r.recreateDerived(ctx, live)
	}
	desired.Spec.Ports = append(desired.Spec.Ports, leavingPorts(live.Spec.Ports, desired.Spec.Ports)...)
	return live, r.updateDerived(ctx, live, desired)
}

// updateDerived makes live, a derived Service, as desired. It changes live.
func (r *Reconciler) updateDerived(ctx context.Context, live, desired *corev1.Service) *status.Problem {
	next, different := owned.RepairedService(live, desired)
	if !different {
		return nil
	}
	if err := r.objects.UpdateService(ctx, live, next); err != nil {
		return problemOf(fmt.Errorf("updating Service %s: %w", client.ObjectKeyFromObject(live), err))
	}
	next.DeepCopyInto(live)
	return nil
}

// recreateDerived deletes a derived Service that another client made headless, or of another type:
// it cannot be updated. Its deletion's event makes it again.
func (r *Reconciler) recreateDerived(ctx context.Context, live *corev1.Service) *status.Problem {
	if err := owned.Delete(ctx, r.Client, live); err != nil {
		return problemOf(fmt.Errorf("deleting Service %s: %w", client.ObjectKeyFromObject(live), err))
	}
	return owned.ProblemOf(owned.ErrRepeat)
}

// removeDerived deletes the derived Service and its slices, as far as they are ours.
func (r *Reconciler) removeDerived(ctx context.Context, key types.NamespacedName) *status.Problem {
	name := DerivedName(key)
	live := &corev1.Service{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, live)
	if err == nil && r.Anchors.Installation.Owns(live) && live.DeletionTimestamp == nil {
		err = owned.Delete(ctx, r.Client, live)
	}
	found := problemOf(client.IgnoreNotFound(err))
	r.objects.Forget(types.NamespacedName{Namespace: key.Namespace, Name: name})
	if left := r.removeSlices(ctx, key, nil); left != nil {
		return first(found, left)
	}
	r.Addresses.Forget(key.String())
	r.objects.Forget(key.String())
	return found
}
