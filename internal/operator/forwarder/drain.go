// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// awaitDeregistration continues to accept until no EndpointSlice lists this pod and kube-proxy has
// had time to follow. The pod stays ready: Kubernetes itself marks terminating pods, and failing
// readiness would make it refuse connections that are under way. When the installation is being
// uninstalled, it returns immediately.
//
// Kubernetes removes a pod from about 20 EndpointSlices a second, one for each hostname, so with
// thousands of them this takes minutes. Deregistration and draining share one timeout;
// awaitDeregistration returns what remains for the drain.
func (f *forwarder) awaitDeregistration(ctx context.Context) (drain time.Duration) {
	started, total := time.Now(), f.timing.deregistrationTimeout+f.options.DrainTimeout
	f.draining.Store(true)
	f.statusChanged.broadcast()
	close(f.stopping)
	f.edge.drain(total)
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	f.log.Info("stopping: accepting until EndpointSlices no longer list this pod")
	f.awaitUnlisted(ctx)
	return min(f.options.DrainTimeout, total-time.Since(started))
}

// awaitUnlisted waits until the EndpointSlices no longer list this pod, or have been unreadable for
// sliceReadGrace, and kube-proxy has had time to follow; or until ctx is done or the installation
// is being uninstalled.
func (f *forwarder) awaitUnlisted(ctx context.Context) {
	lastRead := time.Now()
	for {
		listed, err := f.inEndpointSlices(ctx)
		switch {
		case err == nil && !listed:
			f.sleepUnlessUninstalled(ctx, f.timing.kubeProxyDelay)
			return
		case err == nil:
			lastRead = time.Now()
		case time.Since(lastRead) >= f.timing.sliceReadGrace:
			f.log.Warn("EndpointSlices cannot be read; stopping without them", "error", err)
			f.sleepUnlessUninstalled(ctx, f.timing.kubeProxyDelay)
			return
		}
		if !f.sleepUnlessUninstalled(ctx, f.timing.slicePoll) {
			if ctx.Err() != nil {
				f.log.Warn("EndpointSlices still list this forwarder; stopping anyway", "after",
					f.timing.deregistrationTimeout+f.options.DrainTimeout)
			}
			return
		}
	}
}

// sleepUnlessUninstalled returns true after d, or false as soon as ctx is done or the installation
// is being uninstalled.
func (f *forwarder) sleepUnlessUninstalled(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
	case <-f.uninstall.known:
	}
	return false
}

func (f *forwarder) inEndpointSlices(ctx context.Context) (bool, error) {
	if len(f.options.PodIPs) == 0 {
		return false, errors.New("the pod's IPs are not known")
	}
	return f.options.Source.InEndpointSlices(ctx, f.options.PodIPs)
}

// drainConnections closes the listeners and waits for the connections. It aborts those that outlive
// the drain, and shortens the drain once the installation is being uninstalled.
func (f *forwarder) drainConnections(drain time.Duration) {
	f.listeners.close()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	go func() {
		select {
		case <-f.uninstall.known:
			drain := min(drain, f.timing.uninstallDrain)
			f.log.Info("stopping at once", "why", f.uninstall.reason, "drain", drain)
			timer.Sleep(ctx, drain)
			cancel()
		case <-ctx.Done():
		}
	}()
	started := time.Now()
	if err := f.listeners.wait(ctx); err != nil {
		f.log.Warn("aborting the remaining connections", "after", time.Since(started))
	}
	f.cutConns()
	_ = f.listeners.wait(context.Background())
}

// uninstall finds out that the installation is being uninstalled, at most once: the deletion of a
// namespace cannot be undone.
type uninstall struct {
	source Source
	timing timing
	log    *slog.Logger
	reason string
	known  chan struct{} // known is closed once reason is set.
}

// watch polls whether the namespace is being deleted, more often once the forwarder is
// stopping: Kubernetes delays the deletion by minutes if pods are not gone within about 5 s after
// they were told to stop. It marks a namespace some seconds before that, so the result is usually
// known when the shutdown begins.
//
// A credential may be refused temporarily. It counts as a deleted ServiceAccount only if a stopping
// forwarder has got no other answer for unauthorizedGrace.
func (r *uninstall) watch(ctx context.Context, stop <-chan struct{}) error {
	var refused time.Time // since when requests are refused; zero: they are not
	for interval := r.timing.namespacePoll; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			stop, interval = nil, r.timing.slicePoll
		case <-time.After(interval):
		}
		deleted, err := r.namespaceDeleted(ctx)
		switch {
		case err == nil && deleted:
			r.set("the namespace is being deleted")
			return nil
		case stop != nil || !apierrors.IsUnauthorized(err):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) >= r.timing.unauthorizedGrace:
			r.set("the ServiceAccount of the forwarder is gone")
			return nil
		}
	}
}

// namespaceDeleted reads the namespace once. An error means that its state is unknown, and the
// shutdown is not shortened.
func (r *uninstall) namespaceDeleted(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timing.namespaceTimeout)
	defer cancel()
	deleted, err := r.source.NamespaceDeleted(ctx)
	if err != nil {
		r.log.Debug("the namespace cannot be read; assuming that it is not being deleted", "error", err)
	}
	return deleted, err
}

func (r *uninstall) set(reason string) {
	r.reason = reason
	close(r.known)
}
