// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// List is an answer with many objects.
type List struct {
	Name   string // Name is that of the type in the OpenAPI document.
	Field  string // Field has the objects.
	Of     any    // Of is a value of the objects' type.
	Beside []any  // Beside has values of structs whose fields follow the objects.
}

// page returns the type of a page of a list.
func page(name, field string, of any, beside ...any) List {
	return List{Name: name, Field: field, Of: of, Beside: append([]any{PageLinks{}}, beside...)}
}

// SelfLink is the address of a list.
type SelfLink struct {
	URI string `json:"uri"`
}

// PageLinks are the addresses of a page and of the next one.
type PageLinks struct {
	SelfLink
	NextPageURI *string `json:"next_page_uri"` // null on the last page
}

// Version is where a watch continues after a list: every page has the first page's.
type Version struct {
	ResourceVersion account.ResourceVersion `json:"resource_version"`
}

// Origin is whose endpoints a list has.
type Origin struct {
	AccountID string `json:"account_id"`
	StoreID   string `json:"store_id"`
}

// BackendFields are the fields that backends of every kind have.
type BackendFields struct {
	ID          string    `json:"id"`
	URI         string    `json:"uri"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Description string    `json:"description"`
	Metadata    string    `json:"metadata"`
}

// FailoverBackend is a backend of the kind failover.
type FailoverBackend struct {
	BackendFields
	Backends      []string      `json:"backends"`
	Health        BackendHealth `json:"health"`
	ActiveBackend string        `json:"active_backend"` // "" until something was forwarded
}

// BackendHealth has numbers only where they are not the default.
type BackendHealth struct {
	HTTPStatus []int `json:"http_status"`
	account.HealthRule
}

// WeightedBackend is a backend of the kind weighted.
type WeightedBackend struct {
	BackendFields
	Backends map[string]int `json:"backends"`
}

// TunnelGroupBackend is a backend of the kind tunnel_group.
type TunnelGroupBackend struct {
	BackendFields
	Labels  map[string]string `json:"labels"`
	Tunnels []account.Ref     `json:"tunnels"`
}

// HTTPResponseBackend is a backend of the kind http_response.
type HTTPResponseBackend struct {
	BackendFields
	StatusCode int               `json:"status_code"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
}

// StaticBackend is a backend of the kind static.
type StaticBackend struct {
	BackendFields
	Address string    `json:"address"`
	TLS     StaticTLS `json:"tls"`
}

// StaticTLS reports whether TLS is spoken to the address of a static backend.
type StaticTLS struct {
	Enabled bool `json:"enabled"`
}

// answerValues are the values of fields that may have few, by type and field.
var answerValues = map[string][]string{
	"Endpoint.type":              {account.TypeAgent, account.TypeCloud},
	"Endpoint.status":            {account.StatusOnline, account.StatusOffline},
	"Endpoint.upstream_protocol": {"", "http1", "http2"},
	"Endpoint.scheme":            {"http", "https", "tcp", account.SchemeService},
	"Endpoint.proto":             {"http", "https", "tcp", account.SchemeService},
	"Owner.kind": {account.KindAgentEndpoint, account.KindCloudEndpoint,
		account.KindServiceExport},
	"ServiceExport.type":                    {account.ExportClusterSetIP, account.ExportHeadless},
	"ServiceExport.session_affinity":        {"None", "ClientIP"},
	"ServiceExport.internal_traffic_policy": {"", "Cluster", "Local"},
	"ServiceExportPort.protocol":            {"TCP", "UDP", "SCTP"},
}

// AnswerValues returns the values that a field of an answer may have, by type and field; nil for
// fields that may have many.
func AnswerValues(typeName, field string) []string { return answerValues[typeName+"."+field] }
