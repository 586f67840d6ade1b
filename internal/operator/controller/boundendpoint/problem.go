// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
)

// refusalRetry is the delay before a request that the API server refused is repeated, unless an
// event comes earlier.
const refusalRetry = 30 * time.Second

// problem is what prevents a Service from being written.
type problem struct {
	reason, message string
	retryAfter      time.Duration // when to try again; 0: at the next event
	err             error         // an unexpected error: retried with back-off
	stale           bool          // lost against a concurrent write: retried at once, not reported
	pending         bool          // not known yet: an event will follow, not reported
	// conflictingService is the key of a Service of another owner.
	conflictingService string
}

// problemFromError classifies an error of the API server, nil for none.
func problemFromError(err error) *problem {
	notSynced := (*namespaces.NotSyncedError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &notSynced) && notSynced.Err == nil:
		return &problem{pending: true}
	case owned.IsStale(err):
		return &problem{stale: true, err: err}
	}
	reason := owned.Reason(err)
	switch reason {
	case "":
		return &problem{reason: v1alpha1.ReasonAPIError, message: err.Error(), err: err}
	case v1alpha1.ReasonForbidden:
		reason = v1alpha1.ReasonNamespaceForbidden
	}
	return &problem{reason: reason, message: err.Error(), retryAfter: refusalRetry}
}

// nameTakeover records names that foreign Services have or had, so that a team that deletes and
// re-creates a Service does not lose its name. It is safe for concurrent use.
type nameTakeover struct {
	delay time.Duration

	mu      sync.Mutex
	freedAt map[client.ObjectKey]time.Time // zero: not free
}

func newNameTakeover(delay time.Duration) *nameTakeover {
	return &nameTakeover{delay: delay, freedAt: map[client.ObjectKey]time.Time{}}
}

func (t *nameTakeover) markTaken(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freedAt[key] = time.Time{}
}

func (t *nameTakeover) forget(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.freedAt, key)
}

// remaining returns how long a name that is free now has to stay free. After a restart, the
// object's status records the conflict.
func (t *nameTakeover) remaining(key client.ObjectKey, b *v1alpha1.BoundEndpoint, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, known := t.freedAt[key]
	if !known && b.Status.ConflictingService != key.String() {
		return 0
	}
	if since.IsZero() {
		since = now
		t.freedAt[key] = now
	}
	return t.delay - now.Sub(since)
}

// problemf returns a problem that only an event ends.
func problemf(reason, format string, args ...any) *problem {
	return &problem{reason: reason, message: fmt.Sprintf(format, args...)}
}
