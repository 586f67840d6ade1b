// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"slices"
	"strings"
	"time"
)

// MaxTrafficPolicy is the most bytes of a traffic policy.
const MaxTrafficPolicy = 64 << 10

// EndpointPatch changes an endpoint of type cloud; nil fields stay. BackendID is the short form of
// a last forward-backend: in the result it goes with a TrafficPolicy that has no such action, and
// with none.
type EndpointPatch struct {
	Description    *string        `json:"description,omitempty"`
	Metadata       *string        `json:"metadata,omitempty"`
	TrafficPolicy  *string        `json:"traffic_policy,omitempty"`
	BackendID      *string        `json:"backend_id,omitempty"`
	PoolingEnabled *bool          `json:"pooling_enabled,omitempty"`
	ServiceExport  *ServiceExport `json:"service_export,omitempty"` // ServiceExport replaces the whole one.
	OwnerUID       *string        `json:"-"`                        // the owner's new UID, once it was made again
	// ExpectedPolicy is the policy that TrafficPolicy was made of; nil = of none. CodeChanged when
	// the endpoint has another one by now.
	ExpectedPolicy *string `json:"-"`
	// ExpectedUpdatedAt is the UpdatedAt of the endpoint that the patch was made of; nil = of any.
	// CodeChanged when the endpoint has another one by now.
	ExpectedUpdatedAt *time.Time `json:"-"`
}

// PolicyFacts are the facts of a traffic policy that the store records.
type PolicyFacts struct {
	Digest   string   // equal for texts that mean the same document; "" for no policy
	Backends []string // ids of forward-backend actions, sorted, without repetitions
	// InternalHosts are the targets of forward-internal actions, sorted, without repetitions;
	// "*" = one that is computed for each request
	InternalHosts []string
}

// PolicyChecker compiles a policy for an endpoint of the scheme and binding. Its errors are
// CodeInvalid with the field "traffic_policy" and a rule that names line and column.
type PolicyChecker func(text, scheme, binding string) (PolicyFacts, error)

// CheckUnchanged returns CodeChanged when an object was changed after the time that is expected;
// nil expects none. what names the object in the message.
func CheckUnchanged(what string, updatedAt time.Time, expected *time.Time) error {
	if expected == nil || updatedAt.Equal(*expected) {
		return nil
	}
	return Errorf(CodeChanged, "%s was changed meanwhile; read it, and send the change again", what)
}

// CloudEndpoints stores endpoints of type cloud: rows that no agent holds. An agent's endpoint is
// CodeInvalid here, with what to do instead.
type CloudEndpoints interface {
	// CreateEndpoint makes an endpoint of URL, Bindings, Scheme, Host, Port, Name, Description,
	// Metadata, PoolingEnabled, TrafficPolicy, BackendID, ServiceExport, AccountID, Principal and
	// Owner of e; the rest is the store's. CodeURLTaken when others have the URL, or the owner has
	// it already. CodeInUse when another cluster has the cluster id in a URL of BindingClusterset.
	CreateEndpoint(ctx context.Context, e Endpoint, facts PolicyFacts) (*Endpoint, error)
	// PatchEndpoint changes an endpoint; facts are those of p.TrafficPolicy.
	PatchEndpoint(ctx context.Context, by Caller, id string, p EndpointPatch, facts PolicyFacts) (*Endpoint, error)
	// DeleteEndpoint deletes an endpoint of type cloud, or one of an agent that has an owner and is
	// offline; CodeInUse while it is online.
	DeleteEndpoint(ctx context.Context, by Caller, id string) error
}

// Validate checks the texts of an endpoint of type cloud, and that its URL is one of its binding.
// CodeInvalid lists every broken rule.
func (e *Endpoint) Validate() error {
	var r rules
	switch {
	case len(e.Bindings) != 1:
		r.add("bindings", strings.Join(e.Bindings, ","), "an endpoint has exactly one binding")
	default:
		u, err := ParseBindingURL(e.Bindings[0], e.URL)
		if err == nil {
			r.checkServiceExport(e, u)
		}
		r = append(r, FieldsOf(err)...)
		if err == nil && (u.String() != e.URL || u.Scheme != e.Scheme || u.Host != e.Host || u.Port != e.Port) {
			r.add("url", e.URL, "must be a parsed endpoint URL")
		}
	}
	e.EndpointSettings.validate(&r)
	r.text("traffic_policy", e.TrafficPolicy, MaxTrafficPolicy)
	kind := KindCloudEndpoint
	if slices.Contains(e.Bindings, BindingClusterset) {
		kind = KindServiceExport
	}
	r.checkOwner(e.Owner, kind)
	return r.err()
}

// Apply returns the changed endpoint, with the policy only if the patch has one. CodeInvalid lists
// every rule that its texts break.
func (p EndpointPatch) Apply(e Endpoint) (Endpoint, error) {
	set(&e.Description, p.Description)
	set(&e.Metadata, p.Metadata)
	set(&e.TrafficPolicy, p.TrafficPolicy)
	set(&e.BackendID, p.BackendID)
	set(&e.PoolingEnabled, p.PoolingEnabled)
	if p.ServiceExport != nil {
		e.ServiceExport = p.ServiceExport.Normal()
	}
	if e.Owner != nil && p.OwnerUID != nil {
		owner := *e.Owner
		owner.UID = *p.OwnerUID
		e.Owner = &owner
	}
	return e, e.Validate()
}
