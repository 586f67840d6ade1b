// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Cluster reads a cluster whose ServiceAccounts act for the account.
func (c *Client) Cluster(ctx context.Context, id string) (*account.Cluster, error) {
	return get[account.Cluster](ctx, c, "/clusters/"+url.PathEscape(id))
}
