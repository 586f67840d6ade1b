// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policywatch watches objects by which the owners of namespaces say what holds for the
// endpoints there. Input: an API server and a kind of ours, which the API server may not have: then
// there are no objects. Output: the objects, in which namespaces they are known, and a call after
// each change. What was listed stays valid while the API server is away.
//
// The last objects that selected an endpoint can vanish although that is not meant: their namespace
// is being deleted, or they are being replaced. Vanished keeps what they said for a while.
package policywatch

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// Kind is the kind of the objects.
type Kind struct {
	Name, Resource string
	Object, List   runtime.Object // Object and List are empty.
	// ForbiddenIsNone reports that there are no objects for a watch that was never allowed to list them.
	ForbiddenIsNone bool
}

// Watch watches objects. Its methods are safe for concurrent use.
type Watch struct {
	kind    Kind
	log     *slog.Logger
	sources []*source
	changed chan struct{}
}

// source is the watch of one namespace's objects, or of all.
type source struct {
	namespace string // watched namespace; metav1.NamespaceAll: all
	set       *informer.Set
	objects   cache.Store
	complete  atomic.Bool
}

// New returns a Watch of the objects of the namespaces, each by a watch of its own; without any, of
// all, by one watch.
func New(config *rest.Config, kind Kind, namespaces []string, log *slog.Logger) (*Watch, error) {
	client, err := process.NewBindingsClient(config)
	if err != nil {
		return nil, err
	}
	w := &Watch{kind: kind, log: log, changed: make(chan struct{}, 1)}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, name := range namespaces {
		s := &source{namespace: name, set: informer.NewSet()}
		lw := &optionalKind{ListWatch: cache.NewListWatchFromClient(client, kind.Resource, name, fields.Everything()),
			kind: kind, client: client, log: log.With("namespace", cmp.Or(name, "all"))}
		if s.objects, err = s.set.Add(lw, kind.Object, trim); err != nil {
			return nil, err
		}
		w.sources = append(w.sources, s)
	}
	return w, nil
}

// trim drops what policies do not need.
func trim(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
	}
	return object, nil
}

// RunEach watches until ctx is done, and calls update after changes, for each namespace from another
// goroutine. Failing lists and watches are retried with back-off.
func (w *Watch) RunEach(ctx context.Context, update func()) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range w.sources {
		running.Go(func() {
			s.set.Run(ctx, func() {
				if !s.complete.Swap(true) {
					w.log.Info(w.kind.Name+" objects listed", "namespace", cmp.Or(s.namespace, "all"), "objects",
						len(s.objects.List()))
				}
				update()
			})
		})
	}
}

// Notify makes Changed receive.
func (w *Watch) Notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Changed returns a channel that receives after changes: once for any number, for one receiver.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Listed returns the watched namespaces, and whether their objects were listed.
func (w *Watch) Listed() endpointaccess.Listed {
	listed := endpointaccess.Listed{}
	for _, s := range w.sources {
		listed[s.namespace] = s.complete.Load()
	}
	return listed
}

// Object returns an object, which must not be modified, or nil if there is none.
func (w *Watch) Object(key types.NamespacedName) any {
	for _, s := range w.sources {
		if object, exists, err := s.objects.GetByKey(key.String()); exists && err == nil {
			return object
		}
	}
	return nil
}

// Policies returns the policy of each object, which of makes.
func Policies[T, P any](w *Watch, of func(T) P) []P {
	var policies []P
	for _, s := range w.sources {
		for _, object := range s.objects.List() {
			policies = append(policies, of(object.(T)))
		}
	}
	return policies
}

// Policy is the policy of an object.
type Policy[P any] interface {
	Version() endpointaccess.Version
	VanishedAt(t time.Time) P
}

// Vanished has the policies of objects that were deleted, or got another generation. It is not safe
// for concurrent use.
type Vanished[P Policy[P]] struct {
	Grace  time.Duration // Grace is how long they hold; 0: not at all.
	before []P
	gone   []P // in the order in which they vanished
	expiry *time.Timer
}

// Update returns the policies that have vanished and still hold, now that the present ones are
// there. It calls again when the first of them ceases to hold.
func (v *Vanished[P]) Update(present []P, again func()) []P {
	if v.Grace == 0 {
		return nil
	}
	now, versions := time.Now(), make(map[endpointaccess.Version]struct{}, len(present))
	for _, p := range present {
		versions[p.Version()] = struct{}{}
	}
	for _, p := range v.before {
		if _, ok := versions[p.Version()]; !ok {
			v.gone = append(v.gone, p.VanishedAt(now))
		}
	}
	v.before = present
	for len(v.gone) > 0 && now.Sub(v.gone[0].Version().Vanished) >= v.Grace {
		v.gone = v.gone[1:]
	}
	switch {
	case len(v.gone) == 0:
	case v.expiry == nil:
		v.expiry = time.AfterFunc(v.Grace, again)
	default:
		v.expiry.Reset(v.gone[0].Version().Vanished.Add(v.Grace).Sub(now))
	}
	return v.gone
}

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
