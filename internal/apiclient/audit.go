// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

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
