// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// endpointList is a page of endpoints. The version of every page is the first page's: a watch
// continues there.
type endpointList struct {
	Endpoints       []account.Endpoint      `json:"endpoints"`
	URI             string                  `json:"uri"`
	NextPageURI     *string                 `json:"next_page_uri"`
	ResourceVersion account.ResourceVersion `json:"resource_version"`
	AccountID       string                  `json:"account_id"`
	StoreID         string                  `json:"store_id"`
}

func (s *server) listEndpoints(c *call) error {
	q := c.parseQuery("binding", "url", "before_id", "limit", "watch", "resource_version")
	filter, page, version, watch := q.endpointFilter(), q.page(), q.version("resource_version"), q.flag("watch")
	q.watchable(watch, version)
	if err := q.err(); err != nil {
		return err
	}
	if watch {
		return s.watchEndpoints(c, filter, *version)
	}
	found, err := s.opt.Endpoints.ListEndpoints(c.r.Context(), c.accountID(), filter, page)
	if err != nil {
		return err
	}
	if version, err = listVersion(version, found.Version); err != nil {
		return err
	}
	list := endpointList{Endpoints: found.Endpoints, URI: s.uri("endpoints"), ResourceVersion: *version,
		AccountID: c.accountID(), StoreID: found.StoreID}
	for i := range list.Endpoints {
		s.fillEndpoint(&list.Endpoints[i])
	}
	if n := len(list.Endpoints); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Endpoints[n-1].ID, q,
			url.Values{"resource_version": {version.String()}})
	}
	return c.writeJSON(http.StatusOK, list)
}

// listVersion is the version of every page of a list: the first page's, which later ones carry
// along.
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

func (s *server) getEndpoint(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	e, err := s.opt.Endpoints.Endpoint(c.r.Context(), c.accountID(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	s.showEndpoint(e)
	return c.writeJSON(http.StatusOK, e)
}

// fillEndpoint sets the URIs.
func (s *server) fillEndpoint(e *account.Endpoint) {
	e.URI = s.uri("endpoints", e.ID)
	if e.TunnelSession != nil {
		e.TunnelSession.URI = s.uri("tunnel_sessions", e.TunnelSession.ID)
	}
	s.fillPrincipal(e.Principal)
}

// fillPrincipal sets the URI of an API key, an authtoken or a user. An identity provider, which
// ends sessions by a logout of its own, has none here.
func (s *server) fillPrincipal(ref *account.Ref) {
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
