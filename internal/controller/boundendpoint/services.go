// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/controller/installation"
)

// ensure makes the Service what is desired, or says what is in the way.
func (r *Reconciler) ensure(ctx context.Context, b *v1alpha1.BoundEndpoint, desired *corev1.Service) (*corev1.Service, *problem) {
	key := client.ObjectKeyFromObject(desired)
	live := &corev1.Service{}
	err := r.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if wait := r.takeover.remaining(key, b, r.Now()); wait > 0 {
			return nil, freed(key, wait)
		}
		live, err = r.create(ctx, desired)
	}
	if err != nil {
		return nil, problemOf(fmt.Errorf("creating Service %s: %w", key, err))
	}
	if !r.ours(live, b.Name) {
		r.takeover.conflict(key)
		return nil, conflict(key, ownerOf(live))
	}
	r.takeover.forget(key)
	if live.DeletionTimestamp != nil {
		return nil, &problem{reason: v1alpha1.ReasonAPIError, message: fmt.Sprintf("Service %s is being deleted", key)}
	}
	return r.repair(ctx, live, desired)
}

// ours says whether the Service is this installation's and the hostname's.
func (r *Reconciler) ours(s *corev1.Service, hostname string) bool {
	return r.Layout.Installation.Owns(s) && s.Annotations[installation.AnnotationHostname] == hostname
}

// create creates the Service, or returns the one that already has its name.
func (r *Reconciler) create(ctx context.Context, desired *corev1.Service) (*corev1.Service, error) {
	made := desired.DeepCopy()
	err := r.Client.Create(ctx, made)
	if apierrors.IsInvalid(err) && desired.Spec.ClusterIP != "" {
		// the address it had before has been given to another, or the cluster's range has changed
		made = desired.DeepCopy()
		made.Spec.ClusterIP = ""
		err = r.Client.Create(ctx, made)
	}
	if apierrors.IsAlreadyExists(err) {
		live := &corev1.Service{} // the cache has not seen it yet
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
			return nil, fmt.Errorf("reading it: %w", err)
		}
		return live, nil
	}
	if err == nil {
		log.FromContext(ctx).Info("Created Service", "service", client.ObjectKeyFromObject(made))
	}
	return made, err
}

// repair updates our Service where it differs. One that cannot be updated (a type that somebody changed to one that has no way back) is deleted; its
// deletion is an event that creates it anew.
func (r *Reconciler) repair(ctx context.Context, live, desired *corev1.Service) (*corev1.Service, *problem) {
	next, different := repaired(live, desired)
	if !different {
		return live, nil
	}
	err := r.Client.Update(ctx, next)
	if apierrors.IsInvalid(err) && next.Spec.ClusterIP != desired.Spec.ClusterIP {
		return nil, problemOf(errors.Join(err, r.remove(ctx, live)))
	}
	if err != nil {
		return nil, problemOf(fmt.Errorf("repairing Service %s: %w", client.ObjectKeyFromObject(live), err))
	}
	log.FromContext(ctx).Info("Repaired Service", "service", client.ObjectKeyFromObject(live))
	return next, nil
}

// removeAll deletes every Service of ours that the hostname has, besides those kept: both, even when one of them is gone or cannot be deleted.
func (r *Reconciler) removeAll(ctx context.Context, hostname string, keep ...client.ObjectKey) error {
	services, err := r.owned(ctx, hostname)
	if err != nil {
		return err
	}
	var errs []error
	for i := range services {
		if !contains(keep, client.ObjectKeyFromObject(&services[i])) {
			errs = append(errs, r.remove(ctx, &services[i]))
		}
	}
	return errors.Join(errs...)
}

func contains(keys []client.ObjectKey, key client.ObjectKey) bool {
	for _, k := range keys {
		if k == key {
			return true
		}
	}
	return false
}

// owned lists the Services of ours that belong to the hostname, from the cache.
func (r *Reconciler) owned(ctx context.Context, hostname string) ([]corev1.Service, error) {
	var list corev1.ServiceList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexHostname: hostname}); err != nil {
		return nil, fmt.Errorf("listing the Services of %s: %w", hostname, err)
	}
	return list.Items, nil
}

// remove deletes exactly this Service of ours, in exactly this version.
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
