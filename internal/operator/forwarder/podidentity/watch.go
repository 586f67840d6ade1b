// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	pageSize     = 500 // bounds what is read of pods and not kept
	watchSeconds = 4   // seconds
	probeTimeout = 3 * time.Second
	listTimeout  = time.Minute
	retryAfter   = time.Second
)

// Run watches the pods until ctx is done. It retries after failures; meanwhile all addresses are
// unknown.
func (p *Pods) Run(ctx context.Context) {
	logged := ""
	for {
		err := p.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != logged {
			logged = err.Error()
			p.log.Warn("pods cannot be read; callers are not identified", "error", err)
		}
		if !timer.Sleep(ctx, retryAfter) {
			return
		}
	}
}

// listAndWatch lists all pods and then watches them until a failure.
func (p *Pods) listAndWatch(ctx context.Context) error {
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
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pods, options := map[key]pod{}, metav1.ListOptions{Limit: pageSize}
	for {
		page, err := p.api.List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing pods: %w", err)
		}
		for i := range page.Items {
			if k, e := p.table.newEntry(&page.Items[i]); e != nil {
				pods[k] = *e
			}
		}
		if page.Continue == "" {
			p.table.replace(pods)
			runtime.GC() // frees the previous table and the list's garbage, which a ballast would let accumulate
			return page.ResourceVersion, nil
		}
		options.Continue = page.Continue
	}
}

// probe requests what the API server cannot answer without etcd.
func (p *Pods) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := p.api.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("asking whether the watch of pods is alive: %w", err)
	}
	return nil
}

// watch watches for watchSeconds and returns the last version.
func (p *Pods) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, aliveFor+time.Second) // bounds a hanging watch
	defer cancel()
	w, err := p.api.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true,
		TimeoutSeconds: ptr.To[int64](watchSeconds)})
	if err != nil {
		return "", fmt.Errorf("watching pods: %w", err)
	}
	defer w.Stop()
	p.table.markAlive()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return "", fmt.Errorf("watching pods: %w", apierrors.FromObject(event.Object))
		}
		version = pod.ResourceVersion
		switch event.Type {
		case watch.Added, watch.Modified:
			p.table.set(pod)
		case watch.Deleted:
			p.table.remove(pod)
		}
		p.table.markAlive()
	}
	if ctx.Err() != nil {
		return "", errors.New("watching pods: the watch hung")
	}
	return version, nil
}
