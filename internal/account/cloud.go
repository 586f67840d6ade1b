// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import "context"

// MaxTrafficPolicy is the most bytes of a traffic policy.
const MaxTrafficPolicy = 64 << 10

// EndpointPatch changes an endpoint of type cloud; nil fields stay. TrafficPolicy and BackendID exclude each other in the result.
type EndpointPatch struct {
	Description, Metadata    *string
	TrafficPolicy, BackendID *string
	PoolingEnabled           *bool
}

// PolicyFacts is what the store has to know of a traffic policy.
type PolicyFacts struct {
	Digest   string   // equal for texts that mean the same document; "" for no policy
	Backends []string // ids of forward-backend actions, sorted, without repetitions
}

// PolicyChecker compiles a policy for an endpoint of the scheme and binding. Its errors are CodeInvalid with the field "traffic_policy" and
// a rule that names line and column.
type PolicyChecker func(text, scheme, binding string) (PolicyFacts, error)

// CloudEndpoints keeps endpoints of type cloud: rows that no agent holds. An agent's endpoint is CodeInvalid here, with what to do instead.
type CloudEndpoints interface {
	// CreateEndpoint makes an endpoint of URL, Bindings, Scheme, Host, Port, Name, Description, Metadata, PoolingEnabled, TrafficPolicy, BackendID, AccountID
	// and Principal of e; the rest is the store's. CodeURLTaken when the URL has another owner.
	CreateEndpoint(ctx context.Context, e Endpoint, facts PolicyFacts) (*Endpoint, error)
	// PatchEndpoint changes an endpoint; facts are those of p.TrafficPolicy.
	PatchEndpoint(ctx context.Context, accountID, id string, p EndpointPatch, facts PolicyFacts) (*Endpoint, error)
	DeleteEndpoint(ctx context.Context, accountID, id string) error
}
