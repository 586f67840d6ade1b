// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// leftoverRetry is the delay before leftovers that could not be deleted are read again.
const leftoverRetry = time.Minute

// Leftovers deletes, once, what an earlier manager imported, where Services are no longer imported:
// its slices would list target ports that lead to others later. It is a manager's Runnable.
type Leftovers struct {
	Installation installation.Installation
	Client       client.Client // without a cache
	Log          logr.Logger
}

// Start deletes until nothing is left or the context ends.
func (l *Leftovers) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		deleted, err := l.delete(ctx)
		if deleted > 0 {
			l.Log.Info("Deleted what was imported earlier", "objects", deleted)
		}
		if err == nil {
			break
		}
		l.Log.Info("What was imported earlier cannot be deleted; trying again", "every", leftoverRetry, "cause",
			err.Error())
		timer.Sleep(ctx, leftoverRetry)
	}
	return nil
}

// delete deletes ServiceImports first, as pods look them up.
func (l *Leftovers) delete(ctx context.Context) (deleted int, err error) {
	ours := labels.SelectorFromSet(labels.Set{installation.Label: l.Installation.ID()})
	derived := ours
	if imported, err := labels.NewRequirement(mcsv1beta1.LabelServiceName, selection.Exists, nil); err == nil {
		derived = ours.Add(*imported)
	}
	for _, kind := range []struct {
		list     client.ObjectList
		selector labels.Selector
	}{
		{&mcsv1beta1.ServiceImportList{}, ours}, {&corev1.ServiceList{}, derived},
		{&discoveryv1.EndpointSliceList{}, derived},
	} {
		n, failed := l.deleteKind(ctx, kind.list, kind.selector)
		deleted, err = deleted+n, errors.Join(err, failed)
	}
	return deleted, err
}

// deleteKind deletes our objects of one kind. A kind that the cluster does not serve, or to which
// charts before gave no right, has none.
func (l *Leftovers) deleteKind(
	ctx context.Context, list client.ObjectList, s labels.Selector,
) (deleted int, err error) {
	err = l.Client.List(ctx, list, client.MatchingLabelsSelector{Selector: s})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("listing %T: %w", list, err)
	}
	var errs []error
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o := item.(client.Object)
		if !l.Installation.Owns(o) {
			return nil
		}
		uid := o.GetUID()
		failed := client.IgnoreNotFound(l.Client.Delete(ctx, o, client.Preconditions{UID: &uid}))
		if failed == nil {
			deleted++
		} else {
			errs = append(errs, fmt.Errorf("deleting %T %s: %w", o, client.ObjectKeyFromObject(o), failed))
		}
		return nil
	})
	return deleted, errors.Join(append(errs, err)...)
}
