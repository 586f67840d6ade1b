// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// backendFields are the fields that backends of every kind have.
type backendFields struct {
	ID          string    `json:"id"`
	URI         string    `json:"uri"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Description string    `json:"description"`
	Metadata    string    `json:"metadata"`
}

type failoverBackend struct {
	backendFields
	Backends      []string      `json:"backends"`
	Health        backendHealth `json:"health"`
	ActiveBackend string        `json:"active_backend"` // "" until something was forwarded
}

// backendHealth has numbers only where they are not the default.
type backendHealth struct {
	HTTPStatus     []int `json:"http_status"`
	WindowSeconds  int   `json:"window_seconds,omitempty"`
	MinAnswers     int   `json:"min_answers,omitempty"`
	FailurePercent int   `json:"failure_percent,omitempty"`
	MinClients     int   `json:"min_clients,omitempty"`
}

type weightedBackend struct {
	backendFields
	Backends map[string]int `json:"backends"`
}

type tunnelGroupBackend struct {
	backendFields
	Labels  map[string]string `json:"labels"`
	Tunnels []account.Ref     `json:"tunnels"`
}

type httpResponseBackend struct {
	backendFields
	StatusCode int               `json:"status_code"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
}

type staticBackend struct {
	backendFields
	Address string    `json:"address"`
	TLS     staticTLS `json:"tls"`
}

type staticTLS struct {
	Enabled bool `json:"enabled"`
}

// backendList is a page of backends of one kind.
type backendList[T any] struct {
	Backends []T `json:"backends"`
	pageLinks
}

// The lists have names for the OpenAPI document.
type (
	failoverList     backendList[failoverBackend]
	weightedList     backendList[weightedBackend]
	tunnelGroupList  backendList[tunnelGroupBackend]
	httpResponseList backendList[httpResponseBackend]
	staticList       backendList[staticBackend]
)

// backendTypes are the types of the answers by kind: an object and a list.
var backendTypes = map[account.BackendKind]struct{ object, list any }{
	account.BackendFailover:     {failoverBackend{}, failoverList{}},
	account.BackendWeighted:     {weightedBackend{}, weightedList{}},
	account.BackendTunnelGroup:  {tunnelGroupBackend{}, tunnelGroupList{}},
	account.BackendHTTPResponse: {httpResponseBackend{}, httpResponseList{}},
	account.BackendStatic:       {staticBackend{}, staticList{}},
}

// show returns the backend as it is answered. online are the labelled tunnels of the account, which
// only tunnel groups need.
func (h *backendHandlers) show(b *account.Backend, online []account.LabelledTunnel) any {
	f := backendFields{ID: b.ID, URI: h.uris.at("backends", string(h.kind), b.ID), CreatedAt: b.CreatedAt,
		UpdatedAt: b.UpdatedAt, Description: b.Description, Metadata: b.Metadata}
	switch h.kind {
	case account.BackendFailover:
		rule := b.HealthRule
		health := backendHealth{append([]int{}, b.HealthStatus...), rule.WindowSeconds, rule.MinAnswers,
			rule.FailurePercent, rule.MinClients}
		return failoverBackend{f, b.Children, health, h.edge.ActiveChild(b.AccountID, b.ID)}
	case account.BackendWeighted:
		return weightedBackend{f, b.Weights}
	case account.BackendTunnelGroup:
		return tunnelGroupBackend{f, b.Labels, h.tunnels.withLabels(online, b.Labels)}
	case account.BackendHTTPResponse:
		headers := map[string]string{}
		maps.Copy(headers, b.Response.Headers)
		return httpResponseBackend{f, b.Response.StatusCode, headers, b.Response.Body}
	default:
		return staticBackend{f, b.Static.Address, staticTLS{b.Static.TLS}}
	}
}
