// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deploymentTimeout bounds the question whether the Deployment still exists.
const deploymentTimeout = 3 * time.Second

// deployment is the exporters' own Deployment.
type deployment struct {
	client   client.Reader
	key      client.ObjectKey
	recorder events.EventRecorder

	owner atomic.Pointer[metav1.OwnerReference]
}

// get reads the Deployment and remembers it as owner.
func (d *deployment) get(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err := d.client.Get(ctx, d.key, o); err != nil {
		return nil, err
	}
	d.owner.Store(&metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment",
		Name: o.Name, UID: o.UID})
	return o, nil
}

// isUninstalled reports whether the exporters are being removed for good, and not only this replica
// stopped: the Deployment is gone or being deleted, or with it the right to read it, which this
// replica had before. Of an API server that does not answer it believes neither.
func (d *deployment) isUninstalled(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, deploymentTimeout)
	defer cancel()
	known := d.owner.Load()
	o, err := d.get(ctx)
	switch {
	case err == nil:
		return o.DeletionTimestamp != nil || known != nil && known.UID != o.UID
	case known == nil:
		return false
	}
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// ReportMissingKind implements serviceexport.Deployment.
func (d *deployment) ReportMissingKind(ctx context.Context, missing string) {
	if o, err := d.get(ctx); err == nil {
		d.recorder.Eventf(o, nil, corev1.EventTypeWarning, "NoServiceExports", "Export", "%s", missing)
	}
}
