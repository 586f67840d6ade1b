// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Cluster reads a cluster whose ServiceAccounts act for the account.
func (c *Client) Cluster(ctx context.Context, id string) (*account.Cluster, error) {
	return get[account.Cluster](ctx, c, "/clusters/"+url.PathEscape(id))
}

// HandOverKeys hands a JSON Web Key Set to the cluster whose ServiceAccount token is the credential.
func (c *Client) HandOverKeys(ctx context.Context, jwks json.RawMessage) (*account.KeyHandover, error) {
	var result account.KeyHandover
	_, err := c.call(ctx, http.MethodPost, "/cluster_keys", nil, map[string]any{"jwks": jwks}, &result)
	if err != nil {
		return nil, err
	}
	return &result, nil
}
