// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

const (
	pageSize    = 500
	watchFor    = 4 // seconds
	probeWithin = 3 * time.Second
	listWithin  = time.Minute
	retryAfter  = time.Second
)

// api is what is needed of the client for pods.
type api interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Run keeps the pods until ctx is done. Whatever fails is tried again; meanwhile, everything is unknown.
func (p *Pods) Run(ctx context.Context) {
	said := ""
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			p.log.Warn("pods are not known for now", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return
		}
	}
}

// follow lists all pods and then watches them for as long as that goes well.
func (p *Pods) follow(ctx context.Context) error {
	version, err := p.list(ctx)
	if err != nil {
		return err
	}
	for {
		if err := p.probe(ctx); err != nil {
			return err
		}
		if version, err = p.watch(ctx, version); err != nil {
			return err
		}
	}
}

func (p *Pods) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	pods, options := map[key]pod{}, metav1.ListOptions{Limit: pageSize}
	for {
		page, err := p.api.List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing pods: %w", err)
		}
		for i := range page.Items {
			if k, e := p.table.entry(&page.Items[i]); e != nil {
				pods[k] = *e
			}
		}
		if page.Continue == "" {
			p.table.replace(pods)
			return page.ResourceVersion, nil
		}
		options.Continue = page.Continue
	}
}

// probe asks for something that the API server cannot know without etcd.
func (p *Pods) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if _, err := p.api.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("asking whether the watch of pods is alive: %w", err)
	}
	return nil
}

// watch watches for some seconds and returns the version that it got to.
func (p *Pods) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, silence+time.Second) // one that hangs
	defer cancel()
	w, err := p.api.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](watchFor)})
	if err != nil {
		return "", fmt.Errorf("watching pods: %w", err)
	}
	defer w.Stop()
	p.table.sign()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return "", fmt.Errorf("watching pods: %w", apierrors.FromObject(e.Object))
		}
		object, ok := e.Object.(*corev1.Pod)
		if !ok {
			return "", fmt.Errorf("watching pods: a %T came", e.Object)
		}
		version = object.ResourceVersion
		switch e.Type {
		case watch.Added, watch.Modified:
			p.table.set(object)
		case watch.Deleted:
			p.table.remove(object)
		}
		p.table.sign()
	}
	if ctx.Err() != nil {
		return "", errors.New("watching pods: the watch hung")
	}
	return version, nil
}
