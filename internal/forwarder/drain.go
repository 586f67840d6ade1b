// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"time"
)

// leave goes on accepting until no EndpointSlice names this forwarder and kube-proxy knows it too.
// Readiness stays: Kubernetes itself marks the pods that it stops, and a readiness that fails makes
// it refuse the connections that are still on their way. When the installation is being removed,
// leave returns as soon as it knows: nothing will come any more.
//
// Kubernetes takes a pod out of 20 EndpointSlices a second, one for each hostname, so with
// thousands of them leaving takes minutes. Leaving and draining have one time together; leave
// returns what is left of it to drain.
func (f *forwarder) leave(ctx context.Context) (drain time.Duration) {
	begun, together := time.Now(), f.timing.leaveTimeout+f.options.DrainTimeout
	f.draining.Store(true)
	f.changes.light()
	close(f.stopping)
	f.edge.drain(together)
	ctx, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	f.log.Info("stopping: accepting until pods no longer come")
	f.awaitUnlisted(ctx)
	return min(f.options.DrainTimeout, together-time.Since(begun))
}

// awaitUnlisted waits until the EndpointSlices no longer name this pod, or cannot be read for long
// enough, and kube-proxy has had the time to follow them; or until ctx is done or the installation
// is being removed.
func (f *forwarder) awaitUnlisted(ctx context.Context) {
	lastRead := time.Now()
	for {
		listed, err := f.listed(ctx)
		switch {
		case err == nil && !listed:
			f.stay(ctx, f.timing.settle)
			return
		case err == nil:
			lastRead = time.Now()
		case time.Since(lastRead) >= f.timing.slicesBlind:
			f.log.Warn("EndpointSlices cannot be read; stopping without them", "error", err)
			f.stay(ctx, f.timing.settle)
			return
		}
		if !f.stay(ctx, f.timing.slicesEvery) {
			if ctx.Err() != nil {
				f.log.Warn("EndpointSlices still name this forwarder; stopping all the same", "after",
					f.timing.leaveTimeout+f.options.DrainTimeout)
			}
			return
		}
	}
}

// stay returns true after d, or false as soon as ctx is done or the installation is being removed.
func (f *forwarder) stay(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-f.removal.known:
	}
	return false
}

func (f *forwarder) listed(ctx context.Context) (bool, error) {
	if len(f.options.PodIPs) == 0 {
		return false, errors.New("the pod's IPs are not known")
	}
	return f.options.Source.Listed(ctx, f.options.PodIPs)
}

// finish closes the listeners and waits for the connections. Those that outlive the drain are
// aborted, and so are those that are left soon after it is known that the installation is being
// removed.
func (f *forwarder) finish(drain time.Duration) {
	f.listeners.close()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	go func() {
		select {
		case <-f.removal.known:
			drain := min(drain, f.timing.removedDrain)
			f.log.Info("stopping at once", "why", f.removal.why, "drain", drain)
			sleep(ctx, drain)
			cancel()
		case <-ctx.Done():
		}
	}()
	begun := time.Now()
	if err := f.listeners.wait(ctx); err != nil {
		f.log.Warn("connections are cut", "after", time.Since(begun))
	}
	f.cutConns()
	_ = f.listeners.wait(context.Background())
}
