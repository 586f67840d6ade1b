// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"crypto/x509"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestSealed_ExportedService holds that a forwarder whose EndpointTrust selects an imported Service reaches
// it through the seal, and refuses another exporter that serves the same URL in the clear, or with a
// certificate whose * stands for another namespace.
func TestSealed_ExportedService(t *testing.T) {
	t.Parallel()
	u := account.ExportedPortURL("db", "demo", "a", 5432)
	for name, c := range map[string]struct {
		identity func(*sealtest.Owner) *sealed.Identity
		code     account.Code
	}{
		"sealed": {func(o *sealtest.Owner) *sealed.Identity {
			return o.Identity(account.EndpointURL{Scheme: "tcp", Host: "*.demo.a", Port: 5432})
		}, ""},
		"plain": {func(*sealtest.Owner) *sealed.Identity { return nil }, account.CodeNotSealed},
		"of another namespace": {func(o *sealtest.Owner) *sealed.Identity {
			return o.Identity(account.EndpointURL{Scheme: "tcp", Host: "*.other.a", Port: 5432})
		}, account.CodeSealUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var key account.APIKey
			r.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}}, &key)
			r.Authtoken, r.cluster = *key.Token, "uid-a"
			e := r.endpoint(upstream(t, digest("got ")), c.identity(r.owner))
			e.URL, e.Binding, e.PoolingEnabled = u, account.BindingClusterset, false
			e.Owner = &tunnel.Owner{Kind: account.KindServiceExport, Namespace: "demo", Name: "db", UID: "u"}
			rules := endpointtrust.Compile([]endpointtrust.Policy{{Namespace: "demo", Name: "databases",
				Spec: endpointtrust.Spec{Endpoints: []string{"d*"}, Ports: []int32{5432}}}},
				endpointtrust.Default{Account: r.owner.Account, Authorities: []*x509.Certificate{r.owner.Root}},
				endpointaccess.Listed{"": true})
			trust, err := sealed.NewTrust(rules.Decide(u).Trust)
			must.Succeed(t, err)
			call := r.callAt(u, r.serve("in-a", e), trust)
			if c.code == "" {
				if why := greets(t, call); why != "" {
					t.Error(why)
				}
				return
			}
			if f := <-call.failure; f == nil || f.Code != c.code {
				t.Errorf("%+v", f)
			}
		})
	}
}
