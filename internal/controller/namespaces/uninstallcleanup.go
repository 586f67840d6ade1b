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

	"github.com/fairlead-dev/fairlead/internal/controller/installation"
)

const (
	// cleanupTimeout bounds the removal: the manager's pod and account go as well, and its token with
	// them.
	cleanupTimeout = 15 * time.Second
	cleanupWorkers = 16
	watchRetry     = 10 * time.Second
)

// UninstallCleanup removes the target Services when the operator's own namespace is deleted. With a list of
// namespaces nothing that goes with that namespace can own them: an owner reference to another
// namespace's object makes the collector delete the dependent at once, and there is no ClusterRole.
// It is a Runnable of the leader.
type UninstallCleanup struct {
	Installation installation.Installation
	Informers    *Informers
	// Client deletes.
	Client client.Client
	// Config reaches the API server. The namespace is watched by its own path, for which a Role in it
	// suffices.
	Config *rest.Config
	Log    logr.Logger

	terminating atomic.Bool
}

// NamespaceTerminating says that the namespace is being deleted, so that nothing may be projected any more.
func (f *UninstallCleanup) NamespaceTerminating() bool { return f.terminating.Load() }

// Start watches the namespace until the context ends.
func (f *UninstallCleanup) Start(ctx context.Context) error {
	c, err := f.restClient()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		ends, err := f.watch(ctx, c)
		if ends {
			f.deleteTargetServices(ctx)
			return nil
		}
		if err != nil {
			f.Log.V(1).Info("The operator's namespace cannot be watched", "error", err.Error())
		}
		select {
		case <-time.After(watchRetry):
		case <-ctx.Done():
		}
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

// watch returns whether the namespace is being deleted, or that it can be watched no longer.
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

// deleteTargetServices deletes every target Service. It goes on while the manager is told to stop, which comes
// with the namespace's end.
func (f *UninstallCleanup) deleteTargetServices(ctx context.Context) {
	f.terminating.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	services := make(chan *corev1.Service)
	var removed, failed atomic.Int32
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
				removed.Add(1)
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
	f.Log.Info("The operator's namespace is being deleted: removed the target Services", "removed", removed.Load(),
		"failed", failed.Load())
}
