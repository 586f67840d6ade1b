// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// uris sets the addresses of objects, all below the base URL of the API.
type uris string

// at returns the absolute address of a path of the API.
func (u uris) at(elements ...string) string {
	text := string(u)
	for _, e := range elements {
		text += "/" + url.PathEscape(e)
	}
	return text
}

func (u uris) setEndpoint(e *account.Endpoint) {
	e.URI = u.at("endpoints", e.ID)
	if e.TunnelSession != nil {
		e.TunnelSession.URI = u.at("tunnel_sessions", e.TunnelSession.ID)
	}
	u.setPrincipal(e.Principal)
}

// setPrincipal sets the URI of an API key, an authtoken or a user. An identity provider, which
// can end sessions too, has none.
func (u uris) setPrincipal(ref *account.Ref) {
	switch {
	case ref == nil:
	case strings.HasPrefix(ref.ID, account.PrefixAPIKey+"-"):
		ref.URI = u.at("api_keys", ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixUser+"-"):
		ref.URI = u.at("app", "users", ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixCredential+"-"):
		ref.URI = u.at("credentials", ref.ID)
	}
}

// setEndpointRef sets the URI of a reference, which is nil when the endpoint is deleted.
func (u uris) setEndpointRef(ref *account.Ref) {
	if ref != nil {
		ref.URI = u.at("endpoints", ref.ID)
	}
}

// objectPath returns the path of the list of the objects whose IDs have the prefix, nil when events
// are not about such objects.
func objectPath(prefix string) []string {
	paths := map[string][]string{
		account.PrefixEndpoint: {"endpoints"}, account.PrefixTunnelSession: {"tunnel_sessions"},
		account.PrefixOperator: {"kubernetes_operators"},
		account.PrefixAPIKey:   {"api_keys"}, account.PrefixCredential: {"credentials"},
		account.PrefixCluster: {"clusters"},
		account.PrefixUser:    {"app", "users"}, account.PrefixAppSession: {"app", "sessions"},
	}
	for _, kind := range account.BackendKinds() {
		paths[kind.IDPrefix()] = []string{"backends", string(kind)}
	}
	return paths[prefix]
}

// setEvent sets the URIs of an event. An event outlives its object, so the object's URI may
// lead nowhere.
func (u uris) setEvent(e *account.AuditEvent) {
	e.URI = u.at("events", e.ID)
	u.setPrincipal(e.Principal)
	if e.Object == nil {
		return
	}
	prefix, _, _ := strings.Cut(e.Object.ID, "-")
	if path := objectPath(prefix); path != nil {
		e.Object.URI = u.at(append(slices.Clone(path), e.Object.ID)...)
	}
}
