// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/url"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

// endpointList is a page of endpoints. The version of every page is the first page's: a watch
// continues there.
type endpointList struct {
	Endpoints []account.Endpoint `json:"endpoints"`
	pageLinks
	ResourceVersion account.ResourceVersion `json:"resource_version"`
	AccountID       string                  `json:"account_id"`
	StoreID         string                  `json:"store_id"`
}

func (s *server) endpoints(page func([]account.Endpoint, pageLinks) any) kind[account.Endpoint] {
	return newKind(func(e *account.Endpoint) string { return e.ID }, s.prepareEndpoint, page, "endpoints")
}

func (s *server) listEndpoints(c *call) error {
	q := c.parseQuery("binding", "type", "url", "owner_cluster", "before_id", "limit", "watch", "resource_version")
	filter, page, version, watch := q.endpointFilter(), q.page(), q.version("resource_version"), q.boolean("watch")
	q.checkWatch(watch, version)
	if watch && filter.OwnerCluster != "" {
		q.reject("owner_cluster", filter.OwnerCluster, "goes with a list, not with watch=true")
	}
	if err := q.err(); err != nil {
		return err
	}
	filter, err := c.listFilter(filter, watch)
	if err != nil {
		return err
	}
	if watch {
		return s.watchEndpoints(c, filter, *version)
	}
	found, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	if version, err = listVersion(version, found.Version); err != nil {
		return err
	}
	list := s.endpoints(func(all []account.Endpoint, l pageLinks) any {
		return endpointList{all, l, *version, c.AccountID(), found.StoreID}
	})
	return list.writePage(c, q, found.Endpoints, found.More, url.Values{"resource_version": {version.String()}})
}

// listVersion returns the version of every page of a list: that of the first page, which the
// addresses of later ones have as a parameter.
func listVersion(given *account.ResourceVersion, now account.ResourceVersion) (*account.ResourceVersion, error) {
	switch {
	case given == nil:
		return &now, nil
	case given.Epoch != now.Epoch || given.Seq > now.Seq:
		return nil, account.Errorf(account.CodeGone,
			"resource_version %s is not of this store; list again from the first page", given)
	}
	return given, nil
}

// prepareEndpoint sets the URIs of an endpoint and redacts the secrets of its policy.
func (s *server) prepareEndpoint(e *account.Endpoint) {
	s.setEndpointURIs(e)
	if e.TrafficPolicy != "" {
		e.TrafficPolicy = redact.Text(e.TrafficPolicy, s.redactionMark(e.AccountID))
	}
}

func (s *server) setEndpointURIs(e *account.Endpoint) {
	e.URI = s.uri("endpoints", e.ID)
	if e.TunnelSession != nil {
		e.TunnelSession.URI = s.uri("tunnel_sessions", e.TunnelSession.ID)
	}
	s.setPrincipalURI(e.Principal)
}

// setPrincipalURI sets the URI of an API key, an authtoken or a user. An identity provider, which
// can end sessions too, has none.
func (s *server) setPrincipalURI(ref *account.Ref) {
	switch {
	case ref == nil:
	case strings.HasPrefix(ref.ID, account.PrefixAPIKey+"-"):
		ref.URI = s.uri("api_keys", ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixUser+"-"):
		ref.URI = s.uri("app", "users", ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixCredential+"-"):
		ref.URI = s.uri("credentials", ref.ID)
	}
}
