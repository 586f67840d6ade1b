// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// uninstall is the knowledge that this installation is being removed. It comes once and is never
// taken back: a namespace that is being deleted cannot be kept.
type uninstall struct {
	reason string
	known  chan struct{} // closed once why is set
}

// watchNamespace asks again and again whether the namespace is being deleted, sooner once the
// forwarder stops: Kubernetes waits for minutes when pods are not gone within about 5 s after it
// told them to. It marks a namespace some seconds before that, so that mostly the answer is there
// before the order to stop.
//
// A credential that is refused may be refused in passing. It is taken for a ServiceAccount that is
// gone only when a forwarder that stops has got no other answer for long enough.
func (f *forwarder) watchNamespace(ctx context.Context) error {
	var refused time.Time // since when; zero: the last answer was another
	stop := f.stopping
	for every := f.timing.namespacePoll; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			stop, every = nil, f.timing.slicePoll
		case <-time.After(every):
		}
		removed, err := f.namespaceDeleted(ctx)
		switch {
		case err == nil && removed:
			f.uninstall.set("the namespace is being deleted")
			return nil
		case stop != nil || !apierrors.IsUnauthorized(err):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) >= f.timing.unauthorizedGrace:
			f.uninstall.set("the ServiceAccount of the forwarder is gone")
			return nil
		}
	}
}

// namespaceDeleted asks once. Without an answer in time nobody knows, and then leaving takes its time.
func (f *forwarder) namespaceDeleted(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timing.namespaceTimeout)
	defer cancel()
	removed, err := f.options.Source.NamespaceDeleted(ctx)
	if err != nil {
		f.log.Debug("the namespace cannot be read; taken as not being deleted", "error", err)
	}
	return removed, err
}

func (r *uninstall) set(why string) {
	r.reason = why
	close(r.known)
}
