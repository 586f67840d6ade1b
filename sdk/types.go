// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import "time"

// Ref points to another object.
type Ref struct {
	ID string `json:"id"`
}

// Object has what most objects of the API have.
type Object struct {
	ID          string    `json:"id"`
	Description string    `json:"description"`
	Metadata    string    `json:"metadata"`
	CreatedAt   time.Time `json:"created_at"`
}

// ObjectFields are the fields that can be set of most objects.
type ObjectFields struct {
	Description *string `json:"description,omitempty"`
	Metadata    *string `json:"metadata,omitempty"`
}

// Endpoint is an endpoint of an account, of an agent or of type cloud.
type Endpoint struct {
	Object

	URL             string     `json:"url"`
	Host            string     `json:"host"`
	Port            int        `json:"port"`
	Type            string     `json:"type"`     // agent or cloud
	Bindings        []string   `json:"bindings"` // exactly one
	Name            string     `json:"name"`
	Status          string     `json:"status"` // online or offline
	OfflineSince    *time.Time `json:"offline_since"`
	UpdatedAt       time.Time  `json:"updated_at"`
	PoolingEnabled  bool       `json:"pooling_enabled"`
	UpstreamURL     string     `json:"upstream_url"`
	TunnelSession   *Ref       `json:"tunnel_session"`
	BackendID       string     `json:"backend_id"`
	TrafficPolicy   string     `json:"traffic_policy"` // lists and watches leave it out
	ResourceVersion string     `json:"resource_version"`
}

// EndpointFields are those of an endpoint of type cloud. URL is required in Create; URL, Bindings and
// Name cannot be changed.
type EndpointFields struct {
	ObjectFields

	URL            string   `json:"url,omitempty"`
	Bindings       []string `json:"bindings,omitempty"` // default [BindingKubernetes]
	Name           string   `json:"name,omitempty"`
	TrafficPolicy  *string  `json:"traffic_policy,omitempty"`
	BackendID      *string  `json:"backend_id,omitempty"` // for what the policy neither answers nor forwards
	PoolingEnabled *bool    `json:"pooling_enabled,omitempty"`
}

// FailoverBackend is the first of its children that is up.
type FailoverBackend struct {
	Object

	Backends      []string `json:"backends"`
	ActiveBackend string   `json:"active_backend"` // "" = not known
}

// FailoverBackendFields are those of a [FailoverBackend].
type FailoverBackendFields struct {
	ObjectFields

	Backends []string `json:"backends,omitempty"` // ids, in the order of failover
}

// WeightedBackend is one of its children by chance.
type WeightedBackend struct {
	Object

	Backends map[string]int `json:"backends"` // weights by id
}

// WeightedBackendFields are those of a [WeightedBackend].
type WeightedBackendFields struct {
	ObjectFields

	Backends map[string]int `json:"backends,omitempty"` // weights from 0 to 10000 by id
}

// TunnelGroupBackend is the labelled tunnels that have all its labels.
type TunnelGroupBackend struct {
	Object

	Labels  map[string]string `json:"labels"`
	Tunnels []Ref             `json:"tunnels"`
}

// TunnelGroupBackendFields are those of a [TunnelGroupBackend].
type TunnelGroupBackendFields struct {
	ObjectFields

	Labels map[string]string `json:"labels,omitempty"`
}

// TLSEnabled is whether the service speaks TLS to an address, with the host name verified.
type TLSEnabled struct {
	Enabled bool `json:"enabled"`
}

// StaticBackend is an address that the service connects to.
type StaticBackend struct {
	Object

	Address string     `json:"address"` // host:port
	TLS     TLSEnabled `json:"tls"`
}

// StaticBackendFields are those of a [StaticBackend].
type StaticBackendFields struct {
	ObjectFields

	Address string      `json:"address,omitempty"`
	TLS     *TLSEnabled `json:"tls,omitempty"`
}

// HTTPResponseBackend is a fixed answer.
type HTTPResponseBackend struct {
	Object

	StatusCode int               `json:"status_code"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
}

// HTTPResponseBackendFields are those of an [HTTPResponseBackend].
type HTTPResponseBackendFields struct {
	ObjectFields

	StatusCode int               `json:"status_code,omitempty"` // default 200
	Headers    map[string]string `json:"headers,omitempty"`
	Body       *string           `json:"body,omitempty"`
}

// TunnelSession is the session of an agent.
type TunnelSession struct {
	ID           string    `json:"id"`
	AgentVersion string    `json:"agent_version"`
	Credential   Ref       `json:"credential"`
	IP           string    `json:"ip"`
	OS           string    `json:"os"`
	StartedAt    time.Time `json:"started_at"`
}

// Operator is the installation of a cluster.
type Operator struct {
	Object

	ClusterUID string    `json:"cluster_uid"`
	LastSeenAt time.Time `json:"last_seen_at"`
	Deployment struct {
		Name        string `json:"name"`
		Namespace   string `json:"namespace"`
		Version     string `json:"version"`
		ClusterName string `json:"cluster_name"`
	} `json:"deployment"`
}

// Authtoken is a credential of agents and forwarders.
type Authtoken struct {
	Object

	ACL        []string   `json:"acl"`        // rules such as bind:http://*.demo; empty = everything
	Token      string     `json:"token"`      // Create's answer has it only
	ExpiresAt  *time.Time `json:"expires_at"` // nil = never
	LastUsedAt *time.Time `json:"last_used_at"`
}

// AuthtokenFields are those of an [Authtoken].
type AuthtokenFields struct {
	ObjectFields

	ACL       []string   `json:"acl,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// APIKey is a credential of callers of the API.
type APIKey struct {
	Object

	Scopes     []string   `json:"scopes"`
	Token      string     `json:"token"`      // Create's answer has it only
	ExpiresAt  *time.Time `json:"expires_at"` // nil = never
	LastUsedAt *time.Time `json:"last_used_at"`
}

// APIKeyFields are those of an [APIKey].
type APIKeyFields struct {
	ObjectFields

	Scopes    []string   `json:"scopes,omitempty"` // admin, read, operator, identities
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// User is a person who logged in at an endpoint.
type User struct {
	ID             string    `json:"id"`
	ProviderUserID string    `json:"provider_user_id"`
	Username       string    `json:"username"`
	Email          string    `json:"email"`
	Name           string    `json:"name"`
	CreatedAt      time.Time `json:"created_at"`
	LastActive     time.Time `json:"last_active"`
	LastLogin      time.Time `json:"last_login"`
	Provider       struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	} `json:"identity_provider"`
}

// AppSession is one login of a person, with one browser at one endpoint.
type AppSession struct {
	ID         string    `json:"id"`
	URL        string    `json:"public_url"`
	User       Ref       `json:"application_user"`
	CreatedAt  time.Time `json:"created_at"`
	LastActive time.Time `json:"last_active"`
	ExpiresAt  time.Time `json:"expires_at"`
}
