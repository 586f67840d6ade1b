// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informer watches kinds of objects without the manager's cache. Input: an API server.
// Output: the objects, and a call after each change.
//
// An Informer watches a kind that the API server may not serve, or refuse: it says so, drops what
// was read and asks again. A Set watches several kinds together, keeps what was read, and leaves
// the retries to client-go.
package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// ErrNotRead means that the first list is awaited.
var ErrNotRead = errors.New("the objects have not been read yet")

// Options configure an Informer.
type Options[T client.Object] struct {
	Client    client.WithWatch // Client must not have a cache.
	Kind      T                // Kind and List are empty objects.
	List      client.ObjectList
	Namespace string // Namespace is the only one that is read; empty: all.
	Transform cache.TransformFunc
	Retry     time.Duration // Retry is the delay after a refusal.
	Log       logr.Logger
	// Refused is logged with each new refusal, Readable when the first list after one is complete.
	Refused, Readable string
	// Events receives the changes after the first complete list.
	Events cache.ResourceEventHandler
	// Changed is called after each complete list and each refusal.
	Changed func(refusal error)
}

// Informer holds the objects of a kind in memory. It is a manager's Runnable. Its methods are safe
// for concurrent use and, but for Start, never block.
type Informer[T client.Object] struct {
	Options[T]

	mu      sync.Mutex
	store   cache.Store // nil: not read
	refusal error
}

// New returns an Informer; Start makes it read.
func New[T client.Object](o Options[T]) *Informer[T] { return &Informer[T]{Options: o} }

// Start reads the objects until the context ends. A refusal, as without the CRD, drops what was
// read.
func (i *Informer[T]) Start(ctx context.Context) error {
	for {
		err := i.runUntilRefused(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // what was read stays, so that no condition is written
		}
		i.set(nil, err)
		if !timer.Sleep(ctx, i.Retry) {
			return nil
		}
	}
}

// runUntilRefused keeps the store up to date until the API server refuses, and returns the refusal.
// After other failures it retries and keeps the store.
func (i *Informer[T]) runUntilRefused(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	objects := cache.NewSharedIndexInformerWithOptions(i.lister(), i.Kind,
		cache.SharedIndexInformerOptions{})
	// neither fails before the start
	_ = objects.SetTransform(i.Transform)
	_ = objects.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			stop(err)
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	_, _ = objects.AddEventHandler(i.handler())
	var syncing sync.WaitGroup
	syncing.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), objects.HasSynced) {
			i.set(objects.GetStore(), nil)
		}
	})
	objects.RunWithContext(ctx)
	syncing.Wait()
	return context.Cause(ctx)
}

func (i *Informer[T]) lister() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := i.List.DeepCopyObject().(client.ObjectList)
			return list, i.Client.List(ctx, list, &client.ListOptions{Namespace: i.Namespace, Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return i.Client.Watch(ctx, i.List, &client.ListOptions{Namespace: i.Namespace, Raw: &o})
		},
	}
}

// handler passes changes on to Events. Those before the complete list are covered by Changed.
func (i *Informer[T]) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if i.Problem() == nil {
				i.Events.OnAdd(o, false)
			}
		},
		UpdateFunc: func(before, now any) {
			if i.Problem() == nil {
				i.Events.OnUpdate(before, now)
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if _, ok := o.(T); ok && i.Problem() == nil {
				i.Events.OnDelete(o)
			}
		},
	}
}

// set changes the state, logs and notifies.
func (i *Informer[T]) set(store cache.Store, refusal error) {
	i.mu.Lock()
	last := i.refusal
	i.store, i.refusal = store, refusal
	i.mu.Unlock()
	switch {
	case refusal == nil && last != nil:
		i.Log.Info(i.Readable)
	case refusal != nil && (last == nil || last.Error() != refusal.Error()):
		i.Log.Info(i.Refused, "every", i.Retry, "refusal", refusal.Error())
	}
	i.Changed(refusal)
}

func (i *Informer[T]) state() (cache.Store, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.store == nil && i.refusal == nil {
		return nil, ErrNotRead
	}
	return i.store, i.refusal
}

// Problem returns why the objects are not known: the API server's refusal, or ErrNotRead. It
// returns nil if they are.
func (i *Informer[T]) Problem() error {
	_, err := i.state()
	return err
}

// Get returns the object, which must not be modified, or nil if there is none. The error is that of
// Problem.
func (i *Informer[T]) Get(key types.NamespacedName) (o T, err error) {
	store, err := i.state()
	if err != nil {
		return o, err
	}
	found, _, err := store.GetByKey(key.String())
	if err != nil {
		return o, fmt.Errorf("reading %s: %w", key, err)
	}
	o, _ = found.(T)
	return o, nil
}

// Objects returns the known objects, which must not be modified.
func (i *Informer[T]) Objects() []T {
	store, err := i.state()
	if err != nil {
		return nil
	}
	all := store.List()
	objects := make([]T, len(all))
	for n, o := range all {
		objects[n] = o.(T)
	}
	return objects
}

// Set is a set of informers. It is not safe for concurrent use.
type Set struct {
	changed   chan struct{}
	informers []cache.SharedInformer
}

// NewSet returns a Set without informers.
func NewSet() *Set { return &Set{changed: make(chan struct{}, 1)} }

// Add adds an informer and returns its store, which Run fills with transformed objects.
func (s *Set) Add(lw cache.ListerWatcher, kind runtime.Object, transform cache.TransformFunc) (cache.Store, error) {
	informer := cache.NewSharedInformer(lw, kind, 0)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.notify() }, UpdateFunc: func(any, any) { s.notify() }, DeleteFunc: func(any) {
			s.notify()
		},
	})
	if err := errors.Join(err, informer.SetTransform(transform)); err != nil {
		return nil, fmt.Errorf("watching %T: %w", kind, err)
	}
	s.informers = append(s.informers, informer)
	return informer.GetStore(), nil
}

func (s *Set) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run runs the informers until ctx is done. It calls update once the first one has synced, and
// after changes of any. Failing lists and watches are retried with back-off.
func (s *Set) Run(ctx context.Context, update func()) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, informer := range s.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitFor(ctx, "", s.informers[0].HasSyncedChecker()) {
		return
	}
	for {
		update()
		select {
		case <-s.changed:
		case <-ctx.Done():
			return
		}
	}
}
