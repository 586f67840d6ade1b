// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"time"
)

// leave goes on accepting until no EndpointSlice names this forwarder and kube-proxy knows it too, and returns how long connections may go on after that.
// Readiness stays: Kubernetes itself marks the pods that it stops, and a readiness that fails makes it refuse the connections that are still on their
// way. When the namespace is being deleted, leave returns as soon as it knows: nothing will come any more, and the namespace waits for this pod.
func (f *forwarder) leave(ctx context.Context) time.Duration {
	f.draining.Store(true)
	f.changes.light()
	f.edge.drain(f.timing.leaveTimeout + f.options.DrainTimeout)
	ctx, cancel := context.WithTimeout(ctx, f.timing.leaveTimeout)
	defer cancel()
	removed := f.removed(ctx)
	if !removed {
		f.log.Info("stopping: accepting until pods no longer come")
		removed = f.awaitUnlisted(ctx)
	}
	if !removed {
		return f.options.DrainTimeout
	}
	drain := min(f.options.DrainTimeout, f.timing.removedDrain)
	f.log.Info("stopping at once: the namespace is being deleted", "drain", drain)
	return drain
}

// awaitUnlisted waits until the EndpointSlices no longer name this pod, or cannot be read for long enough, and have settled; or until ctx is done. It
// returns true as soon as the namespace is being deleted.
func (f *forwarder) awaitUnlisted(ctx context.Context) (removed bool) {
	lastRead := time.Now()
	for {
		listed, err := f.listed(ctx)
		switch {
		case err == nil && !listed:
			return f.settle(ctx)
		case err == nil:
			lastRead = time.Now()
		case time.Since(lastRead) >= f.timing.slicesBlind:
			f.log.Warn("EndpointSlices cannot be read; stopping without them", "error", err)
			return f.settle(ctx)
		}
		if !sleep(ctx, f.timing.slicesEvery) {
			f.log.Warn("EndpointSlices still name this forwarder; stopping all the same", "after", f.timing.leaveTimeout)
			return false
		}
		if f.removed(ctx) {
			return true
		}
	}
}

// settle gives kube-proxy the time to follow the EndpointSlices. It returns true as soon as the namespace is being deleted.
func (f *forwarder) settle(ctx context.Context) (removed bool) {
	end := time.Now().Add(f.timing.settle)
	for left := f.timing.settle; left > 0; left = time.Until(end) {
		if !sleep(ctx, min(left, f.timing.slicesEvery)) {
			return false
		}
		if f.removed(ctx) {
			return true
		}
	}
	return false
}

// removed asks whether the namespace is being deleted. Without an answer in time it is not: then leaving takes its time, and no pod meets a closed door.
func (f *forwarder) removed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, f.timing.removedAsk)
	defer cancel()
	removed, err := f.options.Source.Removed(ctx)
	if err != nil {
		f.log.Debug("the namespace cannot be read; taken as not being deleted", "error", err)
	}
	return removed && err == nil
}

func (f *forwarder) listed(ctx context.Context) (bool, error) {
	if f.options.PodIP == "" {
		return false, errors.New("the pod's IP is not known")
	}
	return f.options.Source.Listed(ctx, f.options.PodIP)
}

// finish closes the listeners and waits for the connections; those that outlive the drain are aborted.
func (f *forwarder) finish(drain time.Duration) {
	f.listeners.close()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := f.listeners.wait(ctx); err != nil {
		f.log.Warn("connections are cut", "after", drain)
	}
	f.cutConns()
	_ = f.listeners.wait(context.Background())
}
