// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// informer reads the Services of one namespace.
type informer struct {
	namespace string
	client    client.WithWatch
	transform toolscache.TransformFunc
	notify    func(namespace string, tell func(context.Context, handler.EventHandler, queue))

	mu      sync.Mutex
	store   toolscache.Store // nil: not synced
	refusal error
}

// state returns the Services, or a *NotSyncedError.
func (n *informer) state() (toolscache.Store, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.store == nil {
		return nil, &NotSyncedError{Namespace: n.namespace, Err: n.refusal}
	}
	return n.store, nil
}

// setState sets the state and notifies.
func (n *informer) setState(store toolscache.Store, refusal error) {
	n.mu.Lock()
	n.store, n.refusal = store, refusal
	n.mu.Unlock()
	n.notify(n.namespace, nil)
}

// run reads the namespace until the context ends. A refusal drops what was read.
func (n *informer) run(ctx context.Context, retry time.Duration, log logr.Logger) {
	refused := false
	for {
		err := n.runUntilRefused(ctx, func() {
			if refused {
				log.Info("The Services of the namespace can be read again")
			}
			refused = false
		})
		if ctx.Err() != nil {
			return
		}
		if !refused {
			log.Info("The Services of the namespace cannot be read; asking again", "every", retry, "refusal",
				err.Error())
		}
		refused = true
		n.setState(nil, err)
		if !timer.Sleep(ctx, retry) {
			return
		}
	}
}

// runUntilRefused keeps a store up to date until the API server refuses, and returns the refusal.
// After other failures it retries and keeps the store.
func (n *informer) runUntilRefused(ctx context.Context, read func()) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	services := toolscache.NewSharedIndexInformerWithOptions(n.lister(), &corev1.Service{},
		toolscache.SharedIndexInformerOptions{})
	// neither fails before the start
	_ = services.SetTransform(n.transform)
	_ = services.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			stop(err)
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
	_, _ = services.AddEventHandler(n.handler())
	var syncing sync.WaitGroup
	syncing.Go(func() {
		if toolscache.WaitForCacheSync(ctx.Done(), services.HasSynced) {
			read()
			n.setState(services.GetStore(), nil)
		}
	})
	services.RunWithContext(ctx)
	syncing.Wait()
	return context.Cause(ctx)
}

func (n *informer) lister() toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ServiceList{}
			return list, n.client.List(ctx, list, &client.ListOptions{Namespace: n.namespace, Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return n.client.Watch(ctx, &corev1.ServiceList{}, &client.ListOptions{Namespace: n.namespace, Raw: &o})
		},
	}
}

// handler passes events on. Those before the store is synced are covered by setState.
func (n *informer) handler() toolscache.ResourceEventHandler {
	notify := func(f func(context.Context, handler.EventHandler, queue)) {
		if _, err := n.state(); err == nil {
			n.notify(n.namespace, f)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			notify(func(ctx context.Context, h handler.EventHandler, q queue) {
				h.Create(ctx, event.CreateEvent{Object: o.(*corev1.Service)}, q)
			})
		},
		UpdateFunc: func(before, now any) {
			notify(func(ctx context.Context, h handler.EventHandler, q queue) {
				h.Update(ctx, event.UpdateEvent{ObjectOld: before.(*corev1.Service), ObjectNew: now.(*corev1.Service)},
					q)
			})
		},
		DeleteFunc: func(o any) {
			if deleted, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = deleted.Obj
			}
			if s, ok := o.(*corev1.Service); ok {
				notify(func(ctx context.Context, h handler.EventHandler, q queue) {
					h.Delete(ctx, event.DeleteEvent{Object: s}, q)
				})
			}
		},
	}
}
