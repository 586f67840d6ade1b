// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// problemFromError classifies an error of the API server, nil for none.
func problemFromError(err error) *status.Problem {
	if notSynced, ok := errors.AsType[*namespaces.NotSyncedError](err); ok && notSynced.Err == nil {
		return status.Pending()
	}
	found := owned.ProblemOf(err)
	if found != nil && found.Reason == v1alpha1.ReasonForbidden {
		found.Reason = v1alpha1.ReasonNamespaceForbidden
	}
	return found
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
