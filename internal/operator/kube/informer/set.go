// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

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
