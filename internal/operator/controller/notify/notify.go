// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify passes names of objects to a controller's work queue: endpointsync and
// forwarderstatus name objects, and a Source turns the names into requests for the controller that
// it was given to. Notify never blocks, and names from before the controller's start are kept. A
// Signal wakes a loop that needs no names.
package notify

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Listener is notified of objects by their names. *Source implements it for one controller.
type Listener interface {
	// NotifyAll must not block.
	NotifyAll(names []string)
}

// Signal wakes what waits for it; it holds at most one value. It is safe for concurrent use.
type Signal chan struct{}

// NewSignal returns a Signal without a value.
func NewSignal() Signal { return make(Signal, 1) }

// Send does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Source is a source.Source of one controller; New makes one. It is safe for concurrent use.
type Source struct {
	namespace string
	after     time.Duration // after is the delay of each request.
	priority  int

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	pending map[types.NamespacedName]struct{}
}

// New returns a source of requests for objects of one namespace. With a delay, requests are
// enqueued after it and processed after all others, for updates that may be late.
func New(namespace string, delay time.Duration) *Source {
	s := &Source{namespace: namespace, after: delay, pending: map[types.NamespacedName]struct{}{}}
	if delay > 0 {
		s.priority = handler.LowPriority
	}
	return s
}

// Start sets the controller's queue and enqueues the names from before. Only the controller calls
// it.
func (s *Source) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	for object := range s.pending {
		s.add(object)
	}
	s.pending = nil
	return nil
}

// Notify requests a reconciliation of the named object.
func (s *Source) Notify(name string) {
	s.NotifyObject(types.NamespacedName{Namespace: s.namespace, Name: name})
}

// NotifyObject requests a reconciliation of an object of any namespace.
func (s *Source) NotifyObject(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil {
		s.pending[object] = struct{}{}
		return
	}
	s.add(object)
}

// NotifyObjects requests a reconciliation of each object.
func (s *Source) NotifyObjects(objects []types.NamespacedName) {
	for _, object := range objects {
		s.NotifyObject(object)
	}
}

// NotifyAll requests a reconciliation of each named object.
func (s *Source) NotifyAll(names []string) {
	for _, name := range names {
		s.Notify(name)
	}
}

func (s *Source) add(object types.NamespacedName) {
	request := reconcile.Request{NamespacedName: object}
	if pq, ok := s.queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		pq.AddWithOpts(priorityqueue.AddOpts{After: s.after, Priority: &s.priority}, request)
		return
	}
	s.queue.AddAfter(request, s.after)
}

// Names returns the names of the objects of a list's kind that the cache has; none if it has stopped.
func Names(
	ctx context.Context, cached client.Reader, list client.ObjectList, opts ...client.ListOption,
) (names []types.NamespacedName) {
	if err := cached.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, client.ObjectKeyFromObject(o.(client.Object)))
		return nil
	})
	return names
}

// Requests returns a request for each object.
func Requests(objects []types.NamespacedName) []reconcile.Request {
	requests := make([]reconcile.Request, len(objects))
	for i, object := range objects {
		requests[i].NamespacedName = object
	}
	return requests
}
