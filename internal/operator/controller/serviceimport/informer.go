// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

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
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// serveRetry is the delay before ServiceImports that the API server does not serve, or refuses, are
// listed again.
const serveRetry = 5 * time.Second

// errNotRead means that the first list is awaited.
var errNotRead = errors.New("the ServiceImports have not been read yet")

// informer holds all ServiceImports in memory. It is a manager's Runnable. Its methods are safe for
// concurrent use and never block.
type informer struct {
	client client.WithWatch // without a cache
	retry  time.Duration
	log    logr.Logger
	// changed is called with a ServiceImport that changed, and read after a complete list.
	changed func(types.NamespacedName)
	read    func()

	mu    sync.Mutex
	store toolscache.Store // nil: not read
	err   error            // why
}

// Start reads ServiceImports until the context ends. A refusal, as without the CRD, drops what was
// read.
func (i *informer) Start(ctx context.Context) error {
	logged := ""
	for ctx.Err() == nil {
		err := i.runUntilRefused(ctx, func() {
			if logged != "" {
				i.log.Info("ServiceImports can be read")
			}
			logged = ""
		})
		select {
		case <-ctx.Done():
			return nil // what was read stays, so that no condition is written
		default:
		}
		if text := err.Error(); text != logged {
			logged = text
			i.log.Info("ServiceImports cannot be read; asking again", "every", i.retry, "refusal", text)
		}
		i.set(nil, err)
		timer.Sleep(ctx, i.retry)
	}
	return nil
}

// runUntilRefused keeps the store up to date until the API server refuses, and returns the refusal.
// After other failures it retries and keeps the store.
func (i *informer) runUntilRefused(ctx context.Context, read func()) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	all := toolscache.NewSharedIndexInformerWithOptions(i.lister(), &mcsv1beta1.ServiceImport{},
		toolscache.SharedIndexInformerOptions{})
	// neither fails before the start
	_ = all.SetTransform(cache.TransformStripManagedFields())
	_ = all.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			stop(err)
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
	_, _ = all.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: i.notify, UpdateFunc: func(_, now any) { i.notify(now) }, DeleteFunc: i.notify,
	})
	var syncing sync.WaitGroup
	syncing.Go(func() {
		if toolscache.WaitForCacheSync(ctx.Done(), all.HasSynced) {
			read()
			i.set(all.GetStore(), nil)
			i.read()
		}
	})
	all.RunWithContext(ctx)
	syncing.Wait()
	return context.Cause(ctx)
}

func (i *informer) lister() toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &mcsv1beta1.ServiceImportList{}
			return list, i.client.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return i.client.Watch(ctx, &mcsv1beta1.ServiceImportList{}, &client.ListOptions{Raw: &o})
		},
	}
}

// notify passes the name of a changed object on. Those before the complete list are covered by
// read.
func (i *informer) notify(o any) {
	if deleted, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = deleted.Obj
	}
	if s, ok := o.(*mcsv1beta1.ServiceImport); ok && i.problem() == nil {
		i.changed(client.ObjectKeyFromObject(s))
	}
}

func (i *informer) set(store toolscache.Store, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.store, i.err = store, err
}

// state returns the store, or why there is none.
func (i *informer) state() (toolscache.Store, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.store != nil:
		return i.store, nil
	case i.err != nil:
		return nil, i.err
	}
	return nil, errNotRead
}

// problem returns why the ServiceImports are not known, or nil.
func (i *informer) problem() error {
	_, err := i.state()
	return err
}

// get returns a copy of the ServiceImport, nil if there is none.
func (i *informer) get(key types.NamespacedName) (*mcsv1beta1.ServiceImport, error) {
	store, err := i.state()
	if err != nil {
		return nil, err
	}
	o, ok, err := store.GetByKey(key.String())
	if err != nil {
		return nil, fmt.Errorf("reading ServiceImport %s: %w", key, err)
	}
	if !ok {
		return nil, nil
	}
	return o.(*mcsv1beta1.ServiceImport).DeepCopy(), nil
}

// names returns the names of the known ServiceImports that match.
func (i *informer) names(match func(metav1.Object) bool) []types.NamespacedName {
	store, err := i.state()
	if err != nil {
		return nil
	}
	var names []types.NamespacedName
	for _, o := range store.List() {
		if s := o.(*mcsv1beta1.ServiceImport); match(s) {
			names = append(names, client.ObjectKeyFromObject(s))
		}
	}
	return names
}
