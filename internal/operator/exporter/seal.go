// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// sealRecheck is how often a sealed object is compared with the names of the certificate, which the
// kubelet may have replaced.
const sealRecheck = 30 * time.Second

// seal is the certificate by which the exporters seal endpoints. It is safe for concurrent use.
type seal struct {
	edge *sealededge.Edge
	dir  string // dir has tls.crt and tls.key; "" = there is no certificate.

	mu       sync.Mutex
	identity *sealed.Identity // identity follows the files; nil before they were good.
}

// identityOf returns what seals the connections of an object, or why they cannot be sealed.
func (s *seal) identityOf(spec *v1alpha1.AgentEndpointSpec, u account.EndpointURL) (*sealed.Identity, *status.Problem) {
	switch {
	case s.dir == "":
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "spec.sealed needs a certificate, and the "+
			"exporters have none: name a Secret with tls.crt and tls.key in export.sealSecret of the chart")
	case bindingOf(spec.Bindings) != account.BindingKubernetes:
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "spec.sealed is for the binding kubernetes alone, "+
			"as its callers have forwarders: leave it out, or the binding")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.identity == nil {
		s.identity, err = authority.OpenIdentity(s.dir, "", "")
	}
	if err == nil {
		err = authority.CheckURL(s.dir, s.identity, u)
	}
	if err != nil {
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "the Secret of export.sealSecret: %s",
			account.FieldsOf(err)[0].Rule)
	}
	return s.identity, nil
}
