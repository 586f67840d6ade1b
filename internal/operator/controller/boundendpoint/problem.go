// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
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

// problemFromError classifies an error of the API server. Quotas, admission and address exhaustion
// have no status reason of their own: only the message identifies them.
func problemFromError(err error) *problem {
	if notSynced := (*namespaces.NotSyncedError)(nil); errors.As(err, &notSynced) && notSynced.Err == nil {
		return &problem{pending: true}
	}
	text := err.Error()
	refused := func(reason string) *problem { return &problem{reason: reason, message: text, retryAfter: refusalRetry} }
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, errAddressAllocated):
		return &problem{stale: true, err: err}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return refused(v1alpha1.ReasonNamespaceTerminating)
	case apierrors.IsNotFound(err):
		return refused(v1alpha1.ReasonNamespaceNotFound)
	case strings.Contains(text, "exceeded quota"):
		return refused(v1alpha1.ReasonQuotaExceeded)
	case strings.Contains(text, "denied the request"), strings.Contains(text, "denied request"):
		return refused(v1alpha1.ReasonAdmissionDenied)
	case strings.Contains(text, "range is full"):
		return refused(v1alpha1.ReasonClusterIPExhausted)
	case apierrors.IsForbidden(err):
		return refused(v1alpha1.ReasonNamespaceForbidden)
	case apierrors.IsInvalid(err):
		return refused(v1alpha1.ReasonInvalidEndpoint)
	}
	return &problem{reason: v1alpha1.ReasonAPIError, message: text, err: err}
}

func conflictProblem(key client.ObjectKey, owner string) *problem {
	return &problem{
		reason: v1alpha1.ReasonConflict, conflictingService: key.String(),
		message: fmt.Sprintf("Service %s is not changed: it belongs to %s", key, owner),
	}
}

func takeoverProblem(key client.ObjectKey, wait time.Duration) *problem {
	return &problem{
		reason: v1alpha1.ReasonConflict, retryAfter: wait,
		conflictingService: key.String(),
		message: fmt.Sprintf("Service %s of another owner was deleted; it is made here if the name stays free",
			key),
	}
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

// namespaceProblem returns a problem of the namespace itself.
func namespaceProblem(reason, format string, args ...any) *problem {
	return &problem{reason: reason, message: fmt.Sprintf(format, args...)}
}
