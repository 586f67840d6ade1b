// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// endpointBody is what a client sends of an endpoint of type cloud. In a change, nil fields stay.
type endpointBody struct {
	URL            string                 `json:"url,omitempty"`
	Bindings       []string               `json:"bindings,omitempty"`
	Name           string                 `json:"name,omitempty"`
	Description    *string                `json:"description,omitempty"`
	Metadata       *string                `json:"metadata,omitempty"`
	TrafficPolicy  *string                `json:"traffic_policy,omitempty"`
	BackendID      *string                `json:"backend_id,omitempty"`
	PoolingEnabled *bool                  `json:"pooling_enabled,omitempty"`
	Owner          *account.Owner         `json:"owner,omitempty"`
	ServiceExport  *account.ServiceExport `json:"service_export,omitempty"`
}

// CreateEndpoint creates an endpoint of type cloud from URL, Bindings, Name, Description, Metadata,
// TrafficPolicy, BackendID, PoolingEnabled, Owner and ServiceExport of e.
func (c *Client) CreateEndpoint(ctx context.Context, e account.Endpoint) (*account.Endpoint, error) {
	return c.writeEndpoint(ctx, http.MethodPost, "/endpoints", endpointBody{URL: e.URL, Bindings: e.Bindings,
		Name: e.Name, Description: &e.Description, Metadata: &e.Metadata, TrafficPolicy: &e.TrafficPolicy,
		BackendID: &e.BackendID, PoolingEnabled: &e.PoolingEnabled, Owner: e.Owner,
		ServiceExport: e.ServiceExport})
}

// PatchEndpoint changes an endpoint of type cloud. owner is the endpoint's, with the UID that it
// has now; nil leaves it.
func (c *Client) PatchEndpoint(
	ctx context.Context, id string, p account.EndpointPatch, owner *account.Owner,
) (*account.Endpoint, error) {
	return c.writeEndpoint(ctx, http.MethodPatch, "/endpoints/"+url.PathEscape(id), endpointBody{
		Description: p.Description, Metadata: p.Metadata, TrafficPolicy: p.TrafficPolicy, BackendID: p.BackendID,
		PoolingEnabled: p.PoolingEnabled, Owner: owner, ServiceExport: p.ServiceExport})
}

// DeleteEndpoint deletes an endpoint of type cloud, or one of an agent with an owner, which must be
// offline.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	return c.DeleteObject(ctx, "/endpoints/"+url.PathEscape(id))
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
