// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

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
