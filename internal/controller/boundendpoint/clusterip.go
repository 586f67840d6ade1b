// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"errors"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// addressAttempts is how often an address that is still allocated is requested, once every
// conflictRetry, before any other address is accepted. The API server frees an address shortly
// after the deletion event of its Service.
const addressAttempts = 20

// errAddressAllocated means that the request for the address has to be repeated.
var errAddressAllocated = errors.New("the address that the Service had is still taken")

// writeWithAddress writes a Service that requests the addresses it had before. If they have been
// given to another Service, or the cluster's ranges have changed, it lets the API server choose:
// the second family's address only, where that suffices.
func (r *Reconciler) writeWithAddress(s *corev1.Service, write func() error) error {
	asked := s.DeepCopy()
	err := write()
	if asked.Spec.ClusterIP == "" || !apierrors.IsInvalid(err) {
		return err
	}
	if strings.Contains(err.Error(), "already allocated") && r.addressRetries.retry(client.ObjectKeyFromObject(s)) {
		return errors.Join(errAddressAllocated, err)
	}
	if len(asked.Spec.ClusterIPs) > 1 {
		asked.DeepCopyInto(s)
		s.Spec.ClusterIPs = nil
		if err = write(); !apierrors.IsInvalid(err) {
			return err
		}
	}
	asked.DeepCopyInto(s)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
	return write()
}

// addressRetries counts the requests for an address that is still allocated. It is safe for
// concurrent use.
type addressRetries struct {
	mu       sync.Mutex
	attempts map[client.ObjectKey]int
}

// retry counts a request and reports whether to repeat it.
func (a *addressRetries) retry(key client.ObjectKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts[key]++
	return a.attempts[key] < addressAttempts
}

func (a *addressRetries) forget(key client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.attempts, key)
}
