// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxAddressAttempts is how often an address that is still allocated is requested, once every
// conflictRetry, before any other address is accepted. The API server frees an address shortly
// after the deletion event of its Service.
const maxAddressAttempts = 20

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
	if strings.Contains(err.Error(), "already allocated") && r.retryAddress(client.ObjectKeyFromObject(s)) {
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

// retryAddress counts a request for the Service's addresses and reports whether to repeat it.
func (r *Reconciler) retryAddress(key client.ObjectKey) bool {
	attempts := 1
	if previous, ok := r.addressAttempts.Load(key); ok {
		attempts += previous.(int)
	}
	r.addressAttempts.Store(key, attempts)
	return attempts < maxAddressAttempts
}
