// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify owns the way from the account's watch to a controller's work queue: names of
// objects come in from endpointsync, as requests they go out to the queue of the controller that
// the source was given to. Nothing blocks and nothing is lost before the controller starts.
package notify

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Source is a source.Source of one controller. The zero value is not usable; call New. It is safe
// for concurrent use.
type Source struct {
	namespace string
	after     time.Duration
	priority  int

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	pending map[string]struct{}
}

// New makes a source of requests for objects of one namespace. With a delay, requests are held that
// long and then served after all others: for what may be late and comes in swarms.
func New(namespace string, delay time.Duration) *Source {
	s := &Source{namespace: namespace, after: delay, pending: map[string]struct{}{}}
	if delay > 0 {
		s.priority = handler.LowPriority
	}
	return s
}

// Start takes the controller's queue and hands it what was named before. Only the controller calls
// it.
func (s *Source) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	for name := range s.pending {
		s.add(name)
	}
	s.pending = nil
	return nil
}

// Notify asks for the named object to be reconciled.
func (s *Source) Notify(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil {
		s.pending[name] = struct{}{}
		return
	}
	s.add(name)
}

// NotifyAll asks for each of the named objects to be reconciled.
func (s *Source) NotifyAll(names []string) {
	for _, name := range names {
		s.Notify(name)
	}
}

func (s *Source) add(name string) {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.namespace, Name: name}}
	if pq, ok := s.queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		pq.AddWithOpts(priorityqueue.AddOpts{After: s.after, Priority: &s.priority}, request)
		return
	}
	s.queue.AddAfter(request, s.after)
}
