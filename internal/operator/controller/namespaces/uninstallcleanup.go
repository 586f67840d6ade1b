// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

const (
	// cleanupTimeout bounds the deletion: the manager's pod, ServiceAccount and token are deleted
	// as well.
	cleanupTimeout = 15 * time.Second
	cleanupWorkers = 16
	watchRetry     = 10 * time.Second
)

// UninstallCleanup deletes the target Services when the operator's own namespace is deleted. With a
// list of namespaces no object of that namespace can own them: the garbage collector deletes an
// object at once if its owner reference names an object of another namespace, and there is no
// ClusterRole. It is a Runnable of the leader.
type UninstallCleanup struct {
	Installation installation.Installation
	Informers    *Informers
	// Client deletes Services.
	Client client.Client
	// Config configures the client that watches the namespace by its own path, for which a Role in
	// it suffices.
	Config *rest.Config
	Log    logr.Logger

	terminating atomic.Bool
}

// NamespaceTerminating reports whether the namespace is being deleted, so that nothing may be
// projected; nil: never.
func (f *UninstallCleanup) NamespaceTerminating() bool { return f != nil && f.terminating.Load() }

// Start watches the namespace until the context ends.
func (f *UninstallCleanup) Start(ctx context.Context) error {
	c, err := f.restClient()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		terminating, err := f.watch(ctx, c)
		if terminating {
			f.deleteTargetServices(ctx)
			return nil
		}
		if err != nil {
			f.Log.V(1).Info("The operator's namespace cannot be watched", "error", err.Error())
		}
		timer.Sleep(ctx, watchRetry)
	}
	return nil
}

func (f *UninstallCleanup) restClient() (rest.Interface, error) {
	config := rest.CopyConfig(f.Config)
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the operator's namespace: %w", err)
	}
	return client, nil
}

// watch returns true if the namespace is being deleted, and false if the watch ended.
func (f *UninstallCleanup) watch(ctx context.Context, c rest.Interface) (bool, error) {
	w, err := c.Get().AbsPath("/api/v1/watch/namespaces", f.Installation.Namespace).
		VersionedParams(&metav1.ListOptions{Watch: true}, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if isTerminating(e.Object) {
			return true, nil
		}
	}
	return false, nil
}

func isTerminating(o runtime.Object) bool {
	ns, ok := o.(*corev1.Namespace)
	return ok && ns.DeletionTimestamp != nil
}

// deleteTargetServices deletes every target Service. It continues while the manager is told to
// stop, which happens when the namespace is deleted.
func (f *UninstallCleanup) deleteTargetServices(ctx context.Context) {
	f.terminating.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	services := make(chan *corev1.Service)
	var deleted, failed atomic.Int32
	var working sync.WaitGroup
	for range cleanupWorkers {
		working.Go(func() {
			for s := range services {
				err := f.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID})
				if client.IgnoreNotFound(err) != nil {
					failed.Add(1)
					f.Log.Error(err, "Deleting a Service before the operator's namespace goes", "service",
						client.ObjectKeyFromObject(s))
					continue
				}
				deleted.Add(1)
			}
		})
	}
	for _, s := range f.Informers.List() {
		if f.Installation.Owns(s) {
			services <- s.DeepCopy()
		}
	}
	close(services)
	working.Wait()
	f.Log.Info("The operator's namespace is being deleted: removed the target Services", "removed", deleted.Load(),
		"failed", failed.Load())
}
