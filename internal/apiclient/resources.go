// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// EndpointSnapshot is a whole list of endpoints. Version is that of the first page, where a watch
// continues; it is zero from an API without watch, as AccountID and StoreID are empty from one that
// does not tell them.
type EndpointSnapshot struct {
	Endpoints []account.Endpoint // newest first
	Version   account.ResourceVersion
	AccountID string
	StoreID   string
}

// ListEndpoints reads every page, or fails: it never returns a part of a list.
func (c *Client) ListEndpoints(ctx context.Context, f account.EndpointFilter) (*EndpointSnapshot, error) {
	var all *EndpointSnapshot
	err := eachPage(ctx, c, resource.Endpoints, EndpointQuery(f), func(p *endpointPage) error {
		switch {
		case p.Endpoints == nil:
			return errNoList
		case all == nil:
			all = &EndpointSnapshot{Version: p.ResourceVersion, AccountID: p.AccountID, StoreID: p.StoreID,
				Endpoints: []account.Endpoint{}}
		case p.AccountID != all.AccountID || p.StoreID != all.StoreID:
			return errors.New("its pages are of two accounts or stores")
		}
		all.Endpoints = append(all.Endpoints, *p.Endpoints...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// FirstEndpoints reads the first page of the list of endpoints; without an answer it is empty.
func (c *Client) FirstEndpoints(ctx context.Context, limit int) (page EndpointSnapshot, err error) {
	p := endpointPage{Endpoints: &page.Endpoints}
	_, err = c.call(ctx, http.MethodGet, resource.Endpoints, url.Values{"limit": {strconv.Itoa(limit)}}, nil, &p)
	page.Version, page.AccountID, page.StoreID = p.ResourceVersion, p.AccountID, p.StoreID
	return page, err
}

// Endpoint reads one endpoint.
func (c *Client) Endpoint(ctx context.Context, id string) (*account.Endpoint, error) {
	return get[account.Endpoint](ctx, c, resource.ObjectPath(resource.Endpoints, id))
}

// UpsertOperator registers an installation by (cluster uid, namespace, name), or renews it. created
// reports which.
func (c *Client) UpsertOperator(
	ctx context.Context, o account.Operator,
) (registered *account.Operator, created bool, err error) {
	body := map[string]any{"description": o.Description, "metadata": o.Metadata, "enabled_features": o.EnabledFeatures,
		"region": o.Region, "deployment": o.Deployment, "binding": nil, "cluster_uid": o.ClusterUID}
	if b := o.Binding; b != nil {
		body["binding"] = map[string]any{"endpoint_selectors": b.EndpointSelectors,
			"ingress_endpoint": b.IngressEndpoint}
	}
	registered = &account.Operator{}
	status, err := c.call(ctx, http.MethodPost, resource.Operators, nil, body, registered)
	if err == nil && registered.ID == "" {
		err = &account.Error{Code: account.CodeBadAnswer, Msg: "the answer to the registration has no id",
			Status: status}
	}
	if err != nil {
		return nil, false, err
	}
	return registered, status == http.StatusCreated, nil
}

func get[T any](ctx context.Context, c *Client, path string) (*T, error) {
	out := new(T)
	if _, err := c.call(ctx, http.MethodGet, path, nil, nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Query returns the parameters that have a value.
func Query(given map[string]string) url.Values {
	q := url.Values{}
	for name, value := range given {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// EndpointQuery returns the parameters of a list or a watch of the endpoints that the filter selects.
func EndpointQuery(f account.EndpointFilter) url.Values {
	q := Query(map[string]string{"type": f.Type, "url": f.URL, "owner_cluster": f.OwnerCluster})
	if len(f.Bindings) > 0 {
		q.Set("binding", strings.Join(f.Bindings, ","))
	}
	return q
}

// endpointPage is a page of a list of endpoints, which must be there.
type endpointPage struct {
	Endpoints       *[]account.Endpoint     `json:"endpoints"`
	NextPageURI     *string                 `json:"next_page_uri"`
	ResourceVersion account.ResourceVersion `json:"resource_version"`
	AccountID       string                  `json:"account_id"`
	StoreID         string                  `json:"store_id"`
}

func (p *endpointPage) next() *string { return p.NextPageURI }

var errNoList = errors.New("it is not the list that was asked for")

// Cluster reads a cluster whose ServiceAccounts act for the account.
func (c *Client) Cluster(ctx context.Context, id string) (*account.Cluster, error) {
	return get[account.Cluster](ctx, c, resource.ObjectPath(resource.Clusters, id))
}

// HandOverKeys hands a JSON Web Key Set to the cluster whose ServiceAccount token is the credential.
func (c *Client) HandOverKeys(ctx context.Context, jwks json.RawMessage) (*account.KeyHandover, error) {
	var result account.KeyHandover
	_, err := c.call(ctx, http.MethodPost, resource.ClusterKeys, nil, map[string]any{"jwks": jwks}, &result)
	if err != nil {
		return nil, err
	}
	return &result, nil
}

// User reads a person who logged in at an endpoint.
func (c *Client) User(ctx context.Context, id string) (*account.User, error) {
	return get[account.User](ctx, c, resource.ObjectPath(resource.Users, id))
}

// AppSession reads a session of a person.
func (c *Client) AppSession(ctx context.Context, id string) (*account.AppSession, error) {
	return get[account.AppSession](ctx, c, resource.ObjectPath(resource.AppSessions, id))
}

// eachPage calls add for each page of a list. It uses only the query of a next page's address: the
// service's own address may differ from the one by which the client reaches it.
func eachPage[P any, PP interface {
	*P
	next() *string
}](ctx context.Context, c *Client, path string, query url.Values, add func(PP) error) error {
	query.Set("limit", pageLimit)
	seen := map[string]bool{}
	for {
		if seen[query.Encode()] || len(seen) > maxPages {
			return c.badList(path, errors.New("its pages do not end"))
		}
		seen[query.Encode()] = true
		p := PP(new(P))
		if _, err := c.call(ctx, http.MethodGet, path, query, nil, p); err != nil {
			return err
		}
		if err := add(p); err != nil {
			return c.badList(path, err)
		}
		uri := p.next()
		if uri == nil || *uri == "" {
			return nil
		}
		next, err := url.Parse(*uri)
		if err != nil || next.Path != path {
			return c.badList(path, fmt.Errorf("its next page %q is elsewhere", account.Shorten(*uri)))
		}
		query = next.Query()
	}
}

func (c *Client) badList(path string, cause error) error {
	return &account.Error{Code: account.CodeBadAnswer, Status: http.StatusOK, Cause: cause,
		Msg: "the list that " + c.base.Host + " answered at " + path + " is not whole"}
}

// endpointBody is what a client sends of an endpoint of type cloud. In a change, nil fields stay.
type endpointBody struct {
	URL      string   `json:"url,omitempty"`
	Bindings []string `json:"bindings,omitempty"`
	Name     string   `json:"name,omitempty"`
	account.EndpointPatch
	Owner *account.Owner `json:"owner,omitempty"`
}

// CreateEndpoint creates an endpoint of type cloud from URL, Bindings, Name, Description, Metadata,
// TrafficPolicy, BackendID, PoolingEnabled, Owner and ServiceExport of e.
func (c *Client) CreateEndpoint(ctx context.Context, e account.Endpoint) (*account.Endpoint, error) {
	return c.writeEndpoint(ctx, http.MethodPost, resource.Endpoints, endpointBody{URL: e.URL, Bindings: e.Bindings,
		Name: e.Name, Owner: e.Owner, EndpointPatch: account.EndpointPatch{Description: &e.Description,
			Metadata: &e.Metadata, TrafficPolicy: &e.TrafficPolicy, BackendID: &e.BackendID,
			PoolingEnabled: &e.PoolingEnabled, ServiceExport: e.ServiceExport}})
}

// PatchEndpoint changes an endpoint of type cloud. owner is the endpoint's, with the UID that it
// has now; nil leaves it.
func (c *Client) PatchEndpoint(
	ctx context.Context, id string, p account.EndpointPatch, owner *account.Owner,
) (*account.Endpoint, error) {
	return c.writeEndpoint(ctx, http.MethodPatch, resource.ObjectPath(resource.Endpoints, id),
		endpointBody{EndpointPatch: p, Owner: owner})
}

// DeleteEndpoint deletes an endpoint of type cloud, or one of an agent with an owner, which must be
// offline.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	return c.DeleteObject(ctx, resource.ObjectPath(resource.Endpoints, id))
}

func (c *Client) writeEndpoint(
	ctx context.Context, method, path string, body endpointBody,
) (*account.Endpoint, error) {
	written := &account.Endpoint{}
	status, err := c.call(ctx, method, path, nil, body, written)
	if err == nil && written.ID == "" {
		err = &account.Error{Code: account.CodeBadAnswer, Status: status,
			Msg: "the answer of " + c.base.Host + " is an endpoint without an id"}
	}
	if err != nil {
		return nil, err
	}
	return written, nil
}

// AuditSnapshot is the newest audit events, newest first, and the version from which a watch goes
// on. Events are as they came.
type AuditSnapshot struct {
	Events  []json.RawMessage       `json:"events"`
	Version account.ResourceVersion `json:"resource_version"`
}

// NewestAuditEvents returns at most limit audit events.
func (c *Client) NewestAuditEvents(ctx context.Context, f account.AuditFilter, limit int) (*AuditSnapshot, error) {
	query := auditQuery(f)
	query.Set("limit", strconv.Itoa(limit))
	var page AuditSnapshot
	if _, err := c.call(ctx, http.MethodGet, resource.Events, query, nil, &page); err != nil {
		return nil, err
	}
	if page.Events == nil || page.Version == (account.ResourceVersion{}) {
		return nil, c.badList(resource.Events, errNoList)
	}
	return &page, nil
}

func auditQuery(f account.AuditFilter) url.Values {
	return Query(map[string]string{"type": string(f.Type), "object_id": f.ObjectID})
}
