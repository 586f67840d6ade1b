// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package policywatch

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// optionalKind lists no objects while the API server does not have their CRD. The
// informer asks again with back-off, of 30 s at most. Its methods are called one at a time.
type optionalKind struct {
	*cache.ListWatch
	kind   Kind
	client rest.Interface
	log    *slog.Logger
	logged string // last error that was logged
	listed bool   // listed reports that the API server has listed the objects.
}

// List implements cache.Lister.
func (k *optionalKind) List(o metav1.ListOptions) (runtime.Object, error) {
	return k.ListWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWithContext.
func (k *optionalKind) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := k.ListWatch.ListWithContext(ctx, o)
	k.listed = k.listed || err == nil
	if apierrors.IsNotFound(err) && k.missing(ctx) {
		list, err = k.kind.List.DeepCopyObject(), nil
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.logged {
		k.log.Warn(k.kind.Name+" objects cannot be listed", "error", err)
	}
	k.logged = text
	if apierrors.IsForbidden(err) && k.kind.ForbiddenIsNone && !k.listed {
		return k.kind.List.DeepCopyObject(), nil
	}
	return list, err
}

// missing reports whether the API server lists the kinds of the group without this one. That it
// does not find the resource could also be the answer of a proxy.
func (k *optionalKind) missing(ctx context.Context) bool {
	raw, err := k.client.Get().AbsPath("/apis/" + v1alpha1.GroupVersion.String()).DoRaw(ctx)
	var kinds metav1.APIResourceList
	if err != nil || json.Unmarshal(raw, &kinds) != nil || kinds.GroupVersion != v1alpha1.GroupVersion.String() {
		return false
	}
	return !slices.ContainsFunc(kinds.APIResources,
		func(r metav1.APIResource) bool { return r.Name == k.kind.Resource })
}
