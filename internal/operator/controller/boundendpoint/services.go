// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
)

// ensure makes the Service what is desired, or returns what prevents it.
func (r *Reconciler) ensure(
	ctx context.Context, b *v1alpha1.BoundEndpoint, desired *corev1.Service,
) (*corev1.Service, *problem) {
	key := client.ObjectKeyFromObject(desired)
	live := &corev1.Service{}
	err := r.getService(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if wait := r.takeover.remaining(key, b, r.Clock.Now()); wait > 0 {
			return nil, takeoverProblem(key, wait)
		}
		live, err = r.create(ctx, desired)
	}
	if err != nil {
		return nil, problemFromError(fmt.Errorf("creating Service %s: %w", key, err))
	}
	if !r.isOurs(live, b) {
		r.takeover.markTaken(key)
		return nil, conflictProblem(key, r.describeOwner(live))
	}
	r.takeover.forget(key)
	if live.DeletionTimestamp != nil {
		return nil, &problem{
			reason: v1alpha1.ReasonServiceTerminating, message: fmt.Sprintf("Service %s is being deleted", key),
		}
	}
	return r.repair(ctx, live, desired)
}

// create creates the Service, or returns the one that already has its name.
func (r *Reconciler) create(ctx context.Context, desired *corev1.Service) (*corev1.Service, error) {
	made := desired.DeepCopy()
	err := r.objects.WriteService(made, func() error { return r.Client.Create(ctx, made) })
	if apierrors.IsAlreadyExists(err) {
		live := &corev1.Service{} // the cache has not seen it yet
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
			return nil, fmt.Errorf("reading it: %w", err)
		}
		return live, nil
	}
	if err == nil {
		r.createdServices.Store(client.ObjectKeyFromObject(made), true)
		log.FromContext(ctx).Info("Created Service", "service", client.ObjectKeyFromObject(made))
	}
	return made, err
}

// repair updates a Service of ours if it differs. One that cannot be updated, because it was made
// headless, is deleted; the deletion event re-creates it.
func (r *Reconciler) repair(ctx context.Context, live, desired *corev1.Service) (*corev1.Service, *problem) {
	next, different := owned.RepairedService(live, desired)
	if !different {
		return live, nil
	}
	key := client.ObjectKeyFromObject(live)
	if headless(live) && desired.Spec.Type == corev1.ServiceTypeClusterIP {
		if err := r.remove(ctx, live); err != nil {
			return nil, problemFromError(err)
		}
		return nil, &problem{stale: true}
	}
	var err error
	if next.Spec.ClusterIP == live.Spec.ClusterIP && slices.Equal(next.Spec.ClusterIPs, live.Spec.ClusterIPs) {
		err = r.Client.Update(ctx, next)
	} else {
		err = r.objects.WriteService(next, func() error { return r.Client.Update(ctx, next) })
	}
	if err != nil {
		return nil, problemFromError(fmt.Errorf("repairing Service %s: %w", key, err))
	}
	if p := next.Spec.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal {
		return nil, &problem{reason: v1alpha1.ReasonAdmissionDenied, retryAfter: refusalRetry,
			message: fmt.Sprintf("admission makes Service %s internalTrafficPolicy: Local, so that only pods on the "+
				"forwarders' nodes can call it; exempt it", key)}
	}
	log.FromContext(ctx).Info("Repaired Service", "service", key)
	return next, nil
}

func headless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// removeAll deletes every Service of ours that the hostname has, except those in keep. It tries all
// of them even after a failure, and returns those that are left.
func (r *Reconciler) removeAll(
	ctx context.Context, hostname string, recorded []v1alpha1.ServiceRef, keep ...client.ObjectKey,
) ([]v1alpha1.ServiceRef, error) {
	services, err := r.owned(ctx, hostname, recorded)
	errs := []error{err}
	var left []v1alpha1.ServiceRef
	if err != nil {
		left = recorded // they may not be among services
	}
	for i := range services {
		if slices.Contains(keep, client.ObjectKeyFromObject(&services[i])) {
			continue
		}
		if err := r.remove(ctx, &services[i]); err != nil {
			errs = append(errs, err)
			if ref := serviceRef(&services[i]); !slices.Contains(left, ref) {
				left = append(left, ref)
			}
		}
	}
	return left, errors.Join(errs...)
}

// remove deletes this Service in this version.
func (r *Reconciler) remove(ctx context.Context, s *corev1.Service) error {
	if s.DeletionTimestamp != nil {
		return nil
	}
	key := client.ObjectKeyFromObject(s)
	err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting Service %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Deleted Service", "service", key)
	return nil
}
