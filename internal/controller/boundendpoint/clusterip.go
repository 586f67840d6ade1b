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

// addressAttempts is how often an address that is still taken is asked for before another will do,
// once every `again`. The API server gives an address back a moment after it has told of the end of
// its Service.
const addressAttempts = 20

// errAddressAllocated says that the address is to be asked for once more.
var errAddressAllocated = errors.New("the address that the Service had is still taken")

// writeWithAddress writes a Service that asks for the addresses it had before, and lets the API server
// choose others where those have been given away, or the cluster's ranges have changed: the second
// family's alone, where that is enough.
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

// addressRetries counts how often an address was asked for in vain. It is safe for concurrent use.
type addressRetries struct {
	mu       sync.Mutex
	attempts map[client.ObjectKey]int
}

// retry says whether to ask once more.
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
