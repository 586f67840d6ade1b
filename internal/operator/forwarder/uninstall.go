// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
