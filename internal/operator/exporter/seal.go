// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"sync"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// seal is the certificate by which the exporters seal endpoints. It is safe for concurrent use.
type seal struct {
	edge *sealededge.Edge
	// dir has tls.crt and tls.key, "" = there is no certificate; callers is a file of OpenIdentity.
	dir, callers string
	sealing      trafficpolicy.Sealing // sealing is what the exporters know for policies of sealed endpoints.

	mu       sync.Mutex
	identity *sealed.Identity // identity follows the files; nil before they were good.
}

// identityOf returns what seals the connections of an endpoint, or why they cannot be sealed.
func (s *seal) identityOf(binding string, u account.EndpointURL) (*sealed.Identity, *status.Problem) {
	switch {
	case s.dir == "":
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "a sealed endpoint needs a certificate, and the "+
			"exporters have none: name a Secret with tls.crt and tls.key in export.sealSecret of the chart")
	case binding != account.BindingKubernetes && binding != account.BindingClusterset:
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "spec.sealed is for the binding kubernetes alone, "+
			"as its callers have forwarders: leave it out, or the binding")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.identity == nil {
		s.identity, err = authority.OpenIdentity(s.dir, s.callers, "")
	}
	if err == nil {
		err = authority.CheckURL(s.dir, s.identity, u)
	}
	if err != nil {
		f, value := account.FieldsOf(err)[0], "the Secret of export.sealSecret"
		if f.Field == authority.FieldCallers {
			value = "the ConfigMap of export.sealCallers"
		}
		return nil, status.Problemf(v1alpha1.ReasonSealUnavailable, "%s: %s", value, f.Rule)
	}
	return s.identity, nil
}
