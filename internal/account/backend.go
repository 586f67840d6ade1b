// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"cmp"
	"context"
	"time"
)

// Limits of backends (docs/reference/api/backends.md).
const (
	MaxBackends        = 1_000 // per account, by default
	MaxBackendChildren = 16
	MaxBackendDepth    = 4 // a backend without children has depth 1
	MaxWeight          = 10_000
	MaxLabels          = 16
	MaxLabel           = 128 // bytes of a label's key, and of its value
	MaxResponseBody    = 64 << 10
	MaxResponseHeaders = 64
	MaxHeaderValue     = 4096 // bytes of the value of a response's header
	MaxHealthStatuses  = 32
	MaxHealthWindow    = 300 // seconds
	MaxHealthAnswers   = 1_000
	MaxHealthClients   = 100
)

// BackendKind is the kind of a backend and the last part of its path in the API.
type BackendKind string

// The kinds of backends. A failover and a weighted backend have children, the others are leaves.
const (
	BackendFailover     BackendKind = "failover"
	BackendTunnelGroup  BackendKind = "tunnel_group"
	BackendHTTPResponse BackendKind = "http_response"
	BackendStatic       BackendKind = "static"
	BackendWeighted     BackendKind = "weighted"
)

// BackendKinds lists the kinds.
func BackendKinds() []BackendKind {
	return []BackendKind{BackendFailover, BackendTunnelGroup, BackendHTTPResponse, BackendStatic, BackendWeighted}
}

// IDPrefix is the prefix of the ids of the kind, "" for one that does not exist.
func (k BackendKind) IDPrefix() string {
	return map[BackendKind]string{
		BackendFailover: "bkdfo", BackendTunnelGroup: "bkdtg", BackendHTTPResponse: "bkdhr", BackendStatic: "bkdst",
		BackendWeighted: "bkdwd",
	}[k]
}

// Backend is what a cloud endpoint may forward to. Of the fields after UpdatedAt those of its kind
// are set.
type Backend struct {
	ID          string
	AccountID   string
	Kind        BackendKind
	Description string
	Metadata    string
	CreatedAt   time.Time
	UpdatedAt   time.Time

	Children     []string          // failover: ids, in the order of failover
	HealthStatus []int             // failover: HTTP statuses of a child that count as bad answers; empty = none
	HealthRule   HealthRule        // failover: when a child is down by them
	Weights      map[string]int    // weighted: id of a child -> 0 to MaxWeight
	Labels       map[string]string // tunnel_group: a tunnel belongs to it that has all of them
	Response     *HTTPResponse     // http_response
	Static       *StaticAddress    // static
}

// HealthRule defines when bad answers of a child take it down. A field that is 0 has its default.
type HealthRule struct {
	WindowSeconds  int `json:"window_seconds,omitempty"`  // how long answers count; default 10
	MinAnswers     int `json:"min_answers,omitempty"`     // answers in the window, of any status; default 5
	FailurePercent int `json:"failure_percent,omitempty"` // bad share of clients, and of a client's answers; default 50
	MinClients     int `json:"min_clients,omitempty"`     // clients with bad answers; default 3
}

// WithDefaults returns the rule without zeros.
func (r HealthRule) WithDefaults() HealthRule {
	return HealthRule{
		WindowSeconds: cmp.Or(r.WindowSeconds, 10), MinAnswers: cmp.Or(r.MinAnswers, 5),
		FailurePercent: cmp.Or(r.FailurePercent, 50), MinClients: cmp.Or(r.MinClients, 3),
	}
}

// HealthRulePatch changes a HealthRule; nil fields stay, and 0 is the default.
type HealthRulePatch struct {
	WindowSeconds, MinAnswers, FailurePercent, MinClients *int
}

// HTTPResponse is the answer that an http_response backend gives.
type HTTPResponse struct {
	StatusCode int               `json:"status_code"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`
}

// StaticAddress is the address that a static backend connects to.
type StaticAddress struct {
	Address string `json:"address"`       // host:port
	TLS     bool   `json:"tls,omitempty"` // with the host name verified
}

// BackendPatch changes a backend; nil fields stay. Kind does not change, and fields of other kinds
// are passed over.
type BackendPatch struct {
	Description, Metadata *string
	Children              *[]string
	HealthStatus          *[]int
	HealthRule            HealthRulePatch
	Weights               *map[string]int
	Labels                *map[string]string
	StatusCode            *int // Response.StatusCode; Headers and Body likewise
	Headers               *map[string]string
	Body                  *string
	Address               *string // Static.Address; TLS likewise
	TLS                   *bool
	// ExpectedUpdatedAt is the UpdatedAt of the backend that the patch was made of; nil = of any.
	// CodeChanged when the backend has another one by now.
	ExpectedUpdatedAt *time.Time
}

// BackendTree is a backend with everything below it, as of one moment.
type BackendTree struct {
	Root string
	All  map[string]Backend // by id
}

// Backends stores the backends of an account. Another account's id is CodeNotFound; as a child it
// is refused like one that does not exist.
type Backends interface {
	CreateBackend(ctx context.Context, by Caller, b Backend) (*Backend, error)
	Backend(ctx context.Context, accountID string, kind BackendKind, id string) (*Backend, error)
	ListBackends(ctx context.Context, accountID string, kind BackendKind, p Page) (page []Backend, more bool, err error)
	PatchBackend(ctx context.Context, by Caller, kind BackendKind, id string, p BackendPatch) (*Backend, error)
	// DeleteBackend deletes a backend that nothing refers to: CodeInUse otherwise, naming what
	// does.
	DeleteBackend(ctx context.Context, by Caller, kind BackendKind, id string) error
}

// ActiveChildChange is a change of the child of a failover that serves the new connections of a
// server. A child of "" is none: no child is up.
type ActiveChildChange struct {
	AccountID, BackendID string
	From                 *string // nil = was not known to this server
	To                   *string // nil = is not known any more: the failover was not used for long
}

// BackendTrees reads backends for those who connect through them.
type BackendTrees interface {
	BackendTree(ctx context.Context, accountID, id string) (*BackendTree, error)
}
