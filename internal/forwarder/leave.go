// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"time"
)

// leave goes on accepting until no EndpointSlice names this forwarder and kube-proxy knows it too. Readiness stays: Kubernetes itself marks the pods
// that it stops, and a readiness that fails makes it refuse the connections that are still on their way.
func (f *forwarder) leave(ctx context.Context) {
	f.draining.Store(true)
	f.log.Info("stopping: accepting until pods no longer come")
	f.edge.drain(f.timing.leaveTimeout + f.options.DrainTimeout)
	ctx, cancel := context.WithTimeout(ctx, f.timing.leaveTimeout)
	defer cancel()
	if !f.awaitUnlisted(ctx) {
		return
	}
	sleep(ctx, f.timing.settle)
}

// awaitUnlisted returns true once the EndpointSlices no longer name this pod, or cannot be read for long enough; false when ctx is done.
func (f *forwarder) awaitUnlisted(ctx context.Context) bool {
	lastRead := time.Now()
	for {
		listed, err := f.listed(ctx)
		switch {
		case err == nil && !listed:
			return true
		case err == nil:
			lastRead = time.Now()
		case time.Since(lastRead) >= f.timing.slicesBlind:
			f.log.Warn("EndpointSlices cannot be read; stopping without them", "error", err)
			return true
		}
		if !sleep(ctx, f.timing.slicesEvery) {
			f.log.Warn("EndpointSlices still name this forwarder; stopping all the same", "after", f.timing.leaveTimeout)
			return false
		}
	}
}

func (f *forwarder) listed(ctx context.Context) (bool, error) {
	if f.options.PodIP == "" {
		return false, errors.New("the pod's IP is not known")
	}
	return f.options.Source.Listed(ctx, f.options.PodIP)
}

// finish closes the listeners and waits for the connections; those that outlive the drain are aborted.
func (f *forwarder) finish() {
	f.listeners.close()
	ctx, cancel := context.WithTimeout(context.Background(), f.options.DrainTimeout)
	defer cancel()
	if !f.draining.Load() {
		cancel() // a part of this process failed: there is nothing to wait for
	}
	if err := f.listeners.wait(ctx); err != nil {
		f.log.Warn("connections are cut", "after", f.options.DrainTimeout)
	}
	f.cutConns()
	_ = f.listeners.wait(context.Background())
}
