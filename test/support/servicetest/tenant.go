// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"cmp"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Tenant creates cloud endpoints and backends of an account, straight in the store.
type Tenant struct {
	T       testing.TB
	Store   *store.Store
	Account string
}

// Tenant returns the service's own account, with its store opened beside the service.
func (r *Server) Tenant() *Tenant {
	r.T.Helper()
	sealed, err := r.secretKey()
	must.Succeed(r.T, err)
	st, err := store.Open(Context(r.T), store.Options{DataDir: r.Options.DataDir,
		DatabaseURL: r.Options.DatabaseURL, Key: sealed})
	must.Succeed(r.T, err)
	r.T.Cleanup(func() { _ = st.Close() })
	key, err := st.APIKeyBySecret(Context(r.T), r.APIKey)
	must.Succeed(r.T, err)
	return &Tenant{r.T, st, key.AccountID}
}

// Caller returns the account as the caller of store methods.
func (a *Tenant) Caller() account.Caller { return account.Caller{AccountID: a.Account} }

// Cloud creates a cloud endpoint and returns it as a forwarder would name it.
func (a *Tenant) Cloud(binding, url, policy, backendID string) tunnel.Bound {
	a.T.Helper()
	u, err := account.ParseBindingURL(binding, url)
	must.Succeed(a.T, err)
	e := account.Endpoint{AccountID: a.Account, URL: u.String(), Bindings: []string{binding}, Scheme: u.Scheme,
		Host: u.Host, Port: u.Port,
		Type: account.TypeCloud, TrafficPolicy: policy, BackendID: backendID}
	made, err := a.Store.CreateEndpoint(Context(a.T), e, a.facts(policy, u.Scheme, binding))
	must.Succeed(a.T, err)
	return tunnel.Bound{EndpointID: made.ID, URL: made.URL}
}

func (a *Tenant) facts(policy, scheme, binding string) account.PolicyFacts {
	a.T.Helper()
	if policy == "" {
		return account.PolicyFacts{}
	}
	p, err := trafficpolicy.Compile(policy, trafficpolicy.Options{Scheme: scheme, Binding: binding})
	must.Succeed(a.T, err)
	return p.Facts()
}

// Patch changes an endpoint.
func (a *Tenant) Patch(b tunnel.Bound, p account.EndpointPatch) {
	a.T.Helper()
	var facts account.PolicyFacts
	if p.TrafficPolicy != nil {
		facts = a.facts(*p.TrafficPolicy, "http", account.BindingKubernetes)
	}
	if _, err := a.Store.PatchEndpoint(Context(a.T), a.Caller(), b.EndpointID, p, facts); err != nil {
		a.T.Fatal(err)
	}
}

// Backend creates a backend and returns its id.
func (a *Tenant) Backend(b account.Backend) string {
	a.T.Helper()
	b.AccountID = a.Account
	made, err := a.Store.CreateBackend(Context(a.T), a.Caller(), b)
	must.Succeed(a.T, err)
	return made.ID
}

// Answer creates a backend that answers with the status and body, and returns its id.
func (a *Tenant) Answer(status int, body string) string {
	return a.Backend(account.Backend{Kind: account.BackendHTTPResponse,
		Response: &account.HTTPResponse{StatusCode: status, Body: body, Headers: map[string]string{"X-Canned": "yes"}}})
}

// Static creates a backend of a static address and returns its id.
func (a *Tenant) Static(address string) string {
	return a.Backend(account.Backend{Kind: account.BackendStatic, Static: &account.StaticAddress{Address: address}})
}

// Group creates a tunnel group of the labels and returns its id.
func (a *Tenant) Group(labels map[string]string) string {
	return a.Backend(account.Backend{Kind: account.BackendTunnelGroup, Labels: labels})
}

// Failover creates a failover of the children and returns its id.
func (a *Tenant) Failover(children ...string) string {
	return a.Backend(account.Backend{Kind: account.BackendFailover, Children: children})
}

// secretKey reads the key that seals what is secret in the service's store.
func (r *Server) secretKey() (*seal.Key, error) {
	return seal.Read(cmp.Or(r.Options.SecretKeyFile, filepath.Join(r.Options.DataDir, "secret.key")))
}
