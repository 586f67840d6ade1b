// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// bindRequest validates every field of a bind except the policy, and lists all broken rules.
func bindRequest(t *session, b tunnel.Bind) (account.BindRequest, error) {
	owner, err := t.bindOwner(b)
	if err != nil {
		return account.BindRequest{}, err
	}
	binding := cmp.Or(b.Binding, account.BindingKubernetes)
	u, err := account.ParseBindingURL(binding, b.URL)
	r := account.BindRequest{Endpoint: account.NewEndpoint(binding, u), CredentialID: t.credentialID, SessionID: t.id,
		ResumeSecret: b.ResumeSecret, ReplacePoolPolicy: b.ReplacePoolPolicy}
	r.AccountID, r.Owner = t.accountID, owner
	r.EndpointSettings = account.EndpointSettings{Name: b.Name, Description: b.Description, Metadata: b.Metadata,
		PoolingEnabled: b.PoolingEnabled, UpstreamURL: b.UpstreamURL, UpstreamProtocol: b.UpstreamProtocol,
		HostMode: cmp.Or(b.HostMode, account.HostPassthrough)}
	broken := account.FieldsOf(err)
	for _, f := range account.FieldsOf(r.Validate()) {
		if f.Field != "url" && (f.Field != "binding" || len(broken) == 0) { // reported by the parser already
			broken = append(broken, f)
		}
	}
	broken = append(broken, account.FieldsOf(checkUpstream(b.UpstreamURL))...)
	broken = append(broken,
		account.FieldsOf(account.ValidateHTTPOptions(r.Scheme, r.UpstreamProtocol, r.HostMode))...)
	if len(broken) > 0 {
		return account.BindRequest{}, account.InvalidAll(broken)
	}
	return r, nil
}

func checkUpstream(raw string) error {
	if u, err := url.Parse(raw); err != nil || u.User != nil {
		return account.Invalid("upstream_url", account.NotShown, "must be a URL without user name and password")
	}
	return nil
}

// tunnelRequest returns the labelled tunnel that a bind asks for, or all broken rules.
func tunnelRequest(t *session, b tunnel.Bind) (account.LabelledTunnel, error) {
	want := account.LabelledTunnel{AccountID: t.accountID, TunnelSession: account.Ref{ID: t.id}, Labels: b.Labels,
		Metadata: b.Metadata, ForwardsTo: b.UpstreamURL, UpstreamProtocol: b.UpstreamProtocol}
	broken := account.FieldsOf(want.Validate())
	broken = append(broken, account.FieldsOf(checkUpstream(b.UpstreamURL))...)
	for _, f := range []account.FieldError{
		{Field: "url", Value: b.URL}, {Field: "binding", Value: b.Binding}, {Field: "name", Value: b.Name},
		{Field: "description", Value: b.Description},
		{Field: "host_mode", Value: b.HostMode}, {Field: "traffic_policy", Value: b.TrafficPolicy},
	} {
		if f.Value != "" {
			f.Value, f.Rule = account.Shorten(f.Value), "a labelled tunnel has none; leave it out"
			broken = append(broken, f)
		}
	}
	if b.PoolingEnabled || b.ReplacePoolPolicy {
		broken = append(broken, account.FieldError{Field: "pooling_enabled", Value: "true",
			Rule: "tunnels with the same labels share traffic as they are; leave it out"})
	}
	if b.Owner != nil {
		broken = append(broken, account.FieldError{Field: "owner", Value: account.Shorten(b.Owner.Name),
			Rule: "a labelled tunnel has none; leave it out"})
	}
	if len(broken) > 0 {
		return account.LabelledTunnel{}, account.InvalidAll(broken)
	}
	return want, nil
}

// bindOwner returns the owner of a bind, or nil. Its cluster is that of the session's credential: a
// session never states one.
func (t *session) bindOwner(b tunnel.Bind) (*account.Owner, error) {
	switch {
	case t.clusterUID == "" && (b.Owner != nil || b.Binding == account.BindingClusterset):
		return nil, errNoOwner(t.credentialID)
	case b.Owner == nil:
		return nil, nil
	}
	return &account.Owner{Cluster: t.clusterUID, Kind: b.Owner.Kind, Namespace: b.Owner.Namespace, Name: b.Owner.Name,
		UID: b.Owner.UID}, nil
}

func errNoOwner(credentialID string) *account.Error {
	return account.Errorf(account.CodeScope,
		"authtoken %s cannot bind endpoints of Kubernetes objects: an exporter needs "+
			"an API key with scope exporter, of its cluster", credentialID)
}
