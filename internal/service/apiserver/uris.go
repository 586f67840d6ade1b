// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// uris sets the addresses of objects, all below the base URL of the API.
type uris string

// at returns the absolute address of the object with the ID in the resource at a path.
func (u uris) at(path, id string) string { return string(u) + resource.ObjectPath(path, id) }

func (u uris) setEndpoint(e *account.Endpoint) {
	e.URI = u.at(resource.Endpoints, e.ID)
	if e.TunnelSession != nil {
		e.TunnelSession.URI = u.at(resource.TunnelSessions, e.TunnelSession.ID)
	}
	u.setPrincipal(e.Principal)
}

// setPrincipal sets the URI of an API key, an authtoken or a user. An identity provider, which
// can end sessions too, has none.
func (u uris) setPrincipal(ref *account.Ref) {
	switch {
	case ref == nil:
	case strings.HasPrefix(ref.ID, account.PrefixAPIKey+"-"):
		ref.URI = u.at(resource.APIKeys, ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixUser+"-"):
		ref.URI = u.at(resource.Users, ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixCredential+"-"):
		ref.URI = u.at(resource.Credentials, ref.ID)
	}
}

// setEndpointRef sets the URI of a reference, which is nil when the endpoint is deleted.
func (u uris) setEndpointRef(ref *account.Ref) {
	if ref != nil {
		ref.URI = u.at(resource.Endpoints, ref.ID)
	}
}

// setEvent sets the URIs of an event. An event outlives its object, so the object's URI may
// lead nowhere.
func (u uris) setEvent(e *account.AuditEvent) {
	e.URI = u.at(resource.Events, e.ID)
	u.setPrincipal(e.Principal)
	if e.Object == nil {
		return
	}
	if path := resource.PathOf(e.Object.ID); path != "" {
		e.Object.URI = string(u) + path
	}
}
