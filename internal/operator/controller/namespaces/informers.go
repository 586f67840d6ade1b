// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// NotSyncedError means that the Services of a namespace are not known.
type NotSyncedError struct {
	Namespace string
	// Err is the API server's refusal; nil while the first list is awaited. An event follows when
	// that changes.
	Err error
}

// Error implements error.
func (e *NotSyncedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("the Services of namespace %s have not been read yet", e.Namespace)
	}
	return e.Err.Error()
}

// Unwrap returns the API server's refusal.
func (e *NotSyncedError) Unwrap() error { return e.Err }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Informers reads the Services of listed namespaces. It is a manager's Runnable, on every replica,
// and a Source of one controller. Its methods are safe for concurrent use and never block.
type Informers struct {
	process.EveryReplica
	all map[string]*informer.Informer[*corev1.Service]

	mu      sync.Mutex
	ctx     context.Context // of the controller
	queue   queue           // nil until the controller starts
	handler handler.EventHandler
}

// NewInformers returns an informer for each namespace. transform is applied to cached objects. A
// namespace that refuses is read again after retry.
func NewInformers(
	c client.WithWatch, names []string, transform toolscache.TransformFunc, retry time.Duration, log logr.Logger,
) *Informers {
	i := &Informers{all: map[string]*informer.Informer[*corev1.Service]{}}
	for _, name := range names {
		i.all[name] = informer.New(informer.Options[*corev1.Service]{
			Client: c, Kind: &corev1.Service{}, List: &corev1.ServiceList{}, Namespace: name, Transform: transform,
			Retry: retry, Log: log.WithValues("namespace", name),
			Refused:  "The Services of the namespace cannot be read; asking again",
			Readable: "The Services of the namespace can be read again",
			Events:   i.events(), Changed: func(error) { i.notifyAll(name) },
		})
	}
	return i
}

// Get copies the Service, or returns a NotFound error or a *NotSyncedError.
func (i *Informers) Get(key client.ObjectKey, into *corev1.Service) error {
	n := i.all[key.Namespace]
	if n == nil {
		return &NotSyncedError{Namespace: key.Namespace,
			Err: apierrors.NewForbidden(schema.GroupResource{Resource: "services"},
				key.Name, fmt.Errorf("namespace %s is not listed", key.Namespace))}
	}
	switch o, err := n.Get(key); {
	case errors.Is(err, informer.ErrNotRead):
		return &NotSyncedError{Namespace: key.Namespace}
	case err != nil:
		return &NotSyncedError{Namespace: key.Namespace, Err: err}
	case o == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, key.Name)
	default:
		o.DeepCopyInto(into)
		return nil
	}
}

// Contains reports whether the namespace is listed.
func (i *Informers) Contains(namespace string) bool { return i.all[namespace] != nil }

// List returns the known Services of all namespaces. They must not be modified.
func (i *Informers) List() []*corev1.Service {
	var all []*corev1.Service
	for _, n := range i.all {
		all = append(all, n.Objects()...)
	}
	return all
}

// Start runs the informers until the context ends.
func (i *Informers) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, n := range i.all {
		running.Go(func() { _ = n.Start(ctx) }) // it returns no error
	}
	running.Wait()
	return nil
}

// Source returns the events of all namespaces for one controller. A generic event has a Namespace
// that became readable or unreadable. The controller's start does not wait for informers.
func (i *Informers) Source(h handler.EventHandler) *Source {
	i.handler = h
	return &Source{i}
}

// Source is a source.Source.
type Source struct{ informers *Informers }

// Start sets the controller's queue and enqueues what is already known. Only the controller calls
// it.
func (s *Source) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.informers.mu.Lock()
	s.informers.ctx, s.informers.queue = ctx, q
	s.informers.mu.Unlock()
	for name := range s.informers.all {
		s.informers.notifyAll(name)
	}
	return nil
}

// controller returns the controller's context and queue; nil until it starts, which calls notifyAll.
func (i *Informers) controller() (context.Context, queue) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ctx, i.queue
}

// events passes changes on to the controller.
func (i *Informers) events() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if ctx, q := i.controller(); q != nil {
				i.handler.Create(ctx, event.CreateEvent{Object: o.(*corev1.Service)}, q)
			}
		},
		UpdateFunc: func(before, now any) {
			if ctx, q := i.controller(); q != nil {
				i.handler.Update(ctx, event.UpdateEvent{ObjectOld: before.(*corev1.Service),
					ObjectNew: now.(*corev1.Service)}, q)
			}
		},
		DeleteFunc: func(o any) {
			if ctx, q := i.controller(); q != nil {
				i.handler.Delete(ctx, event.DeleteEvent{Object: o.(*corev1.Service)}, q)
			}
		},
	}
}

// notifyAll passes everything on that the namespace has.
func (i *Informers) notifyAll(namespace string) {
	ctx, q := i.controller()
	if q == nil {
		return
	}
	for _, o := range i.all[namespace].Objects() {
		i.handler.Create(ctx, event.CreateEvent{Object: o, IsInInitialList: true}, q)
	}
	i.handler.Generic(ctx, event.GenericEvent{Object: &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}}}, q)
}
