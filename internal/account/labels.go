// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"
)

// LabelledTunnel is an agent's tunnel that belongs to tunnel groups by its labels, not to an endpoint by a URL. It lives as long as its
// session holds it.
type LabelledTunnel struct {
	ID               string            `json:"id"`
	URI              string            `json:"uri"`
	Labels           map[string]string `json:"labels"`
	Metadata         string            `json:"metadata"`
	ForwardsTo       string            `json:"forwards_to"` // the agent's upstream
	UpstreamProtocol string            `json:"upstream_protocol"`
	Region           string            `json:"region"`
	StartedAt        time.Time         `json:"started_at"`
	TunnelSession    Ref               `json:"tunnel_session"`

	AccountID string `json:"-"`
}

// LabelledTunnelPage is a page of labelled tunnels.
type LabelledTunnelPage struct {
	Tunnels []LabelledTunnel
	More    bool
}

// LabelledTunnels reads the labelled tunnels that are online. An empty Labels matches all.
type LabelledTunnels interface {
	LabelledTunnel(ctx context.Context, accountID, id string) (*LabelledTunnel, error)
	ListLabelledTunnels(ctx context.Context, accountID string, labels map[string]string, p Page) (*LabelledTunnelPage, error)
}
