// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

const (
	// kindInterval is the pause before the API server is asked again for the kind.
	kindInterval = 5 * time.Second
	// kindWait is how long the exporter waits for the first list of ServiceExports before it counts
	// as ready without them, for an exporter that must not read them has other work.
	kindWait = 30 * time.Second
)

const kindMissing = "the cluster does not have the kind ServiceExport of multicluster.x-k8s.io/v1beta1, which is " +
	"picked up as soon as it has: " + clusterset.InstallCRDs

// Informers starts and returns the informer of a kind. cache.Cache implements it.
type Informers interface {
	GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// kind is whether ServiceExports are read.
type kind struct {
	read    atomic.Bool // the cache has them
	missing atomic.Bool // the API server does not have the kind
	since   atomic.Pointer[time.Time]
}

func (k *kind) isRead() bool { return k.read.Load() }

// Start reads ServiceExports as soon as the API server has them, and looks for the cluster's id,
// until the context ends.
func (r *Reconciler) Start(ctx context.Context) error {
	now := time.Now()
	r.kind.since.Store(&now)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.ids.run(ctx) })
	if !r.awaitKind(ctx) {
		return nil
	}
	informer, err := r.Informers.GetInformer(ctx, &v1beta1.ServiceExport{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: r.enqueue, UpdateFunc: func(_, now any) { r.enqueue(now) }, DeleteFunc: r.enqueue,
		})
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("watching ServiceExports: %w", err)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		r.kind.read.Store(true)
		r.exports.changes.NotifyObjects(notify.Names(ctx, r.Client, &v1beta1.ServiceExportList{}))
		r.Orphans.Send() // an earlier round could not tell which exports there are
	}
	<-ctx.Done()
	return nil
}

// awaitKind returns true when the API server has ServiceExports and lets them be read, and false
// when the context ends.
func (r *Reconciler) awaitKind(ctx context.Context) bool {
	logged := ""
	for ctx.Err() == nil {
		err := r.probe(ctx)
		if err == nil {
			return true
		}
		message := err.Error()
		if isMissing := apierrors.IsNotFound(err); isMissing {
			r.kind.missing.Store(true)
			message = kindMissing
		}
		if ctx.Err() == nil && message != logged {
			logged = message
			r.Log.Info("Services are not exported; everything else is", "cause", message)
			if r.kind.missing.Load() {
				r.Deployment.ReportMissingKind(ctx, message)
			}
		}
		timer.Sleep(ctx, kindInterval)
	}
	return false
}

// probe reads ServiceExports as the cache would.
func (r *Reconciler) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	options := []client.ListOption{client.Limit(1)}
	if len(r.Namespaces) > 0 {
		options = append(options, client.InNamespace(r.Namespaces[0]))
	}
	if err := r.Live.List(ctx, &v1beta1.ServiceExportList{}, options...); err != nil {
		return fmt.Errorf("reading ServiceExports: %w", err)
	}
	return nil
}

// enqueue requests a reconciliation of an object that the cache has, or has no more.
func (r *Reconciler) enqueue(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if export, ok := o.(*v1beta1.ServiceExport); ok {
		r.exports.changes.NotifyObject(client.ObjectKeyFromObject(export))
	}
}

// cached returns the names of the exports that the cache has.
func (r *Reconciler) cached(ctx context.Context) ([]types.NamespacedName, error) {
	var list v1beta1.ServiceExportList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ServiceExports: %w", err)
	}
	names := make([]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		names[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return names, nil
}

// Names returns the exports that there are, of a cluster without the kind none. It is an error
// while they are being read for the first time.
func (r *Reconciler) Names(ctx context.Context) ([]types.NamespacedName, error) {
	since := r.kind.since.Load()
	switch {
	case r.kind.isRead():
		return r.cached(ctx)
	case r.kind.missing.Load(), since != nil && time.Since(*since) > kindWait:
		return nil, nil
	}
	return nil, errors.New("the ServiceExports are being read")
}

// PortURLs returns the URLs of the ports that each export has. known is false while the exports or
// the cluster's id are not.
func (r *Reconciler) PortURLs(ctx context.Context) (urls map[types.NamespacedName][]string, known bool, err error) {
	id, _ := r.ids.get()
	if id == "" || !r.kind.isRead() {
		return nil, false, nil
	}
	names, err := r.cached(ctx)
	if err != nil {
		return nil, false, err
	}
	urls = map[types.NamespacedName][]string{}
	for _, name := range names {
		urls[name] = nil
		var service corev1.Service
		err := r.Client.Get(ctx, name, &service)
		if client.IgnoreNotFound(err) != nil {
			return nil, false, fmt.Errorf("reading Service %s: %w", name, err)
		}
		carried, err := r.carriedPorts(ctx, &service)
		if err != nil {
			return nil, false, err
		}
		for port := range carried.refs {
			urls[name] = append(urls[name], account.ExportedPortURL(name.Name, name.Namespace, id, int(port)).String())
		}
	}
	return urls, true, nil
}
