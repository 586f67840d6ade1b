// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "time"

// Role is what the dialling side of a session is.
type Role string

// The roles.
const (
	RoleAgent     Role = "agent"     // binds endpoints and takes the streams that the server opens
	RoleForwarder Role = "forwarder" // opens streams to the server
)

// Hello is the client's first message on every connection: at most 16 KiB as JSON, answered within 10 s by a Welcome or an Error.
type Hello struct {
	Role          Role   `json:"role"`
	Token         string `json:"token,omitempty"`
	ClientVersion string `json:"client_version,omitempty"`
	OS            string `json:"os,omitempty"`
	InstanceID    string `json:"instance_id,omitempty"`
	OperatorID    string `json:"operator_id,omitempty"`
	Metadata      string `json:"metadata,omitempty"`

	// SessionID and JoinSecret are set on the connections of a session after its first. The Client sets them.
	SessionID  string `json:"session_id,omitempty"`
	JoinSecret string `json:"join_secret,omitempty"`
}

// Welcome is the server's answer to a Hello it accepts.
type Welcome struct {
	SessionID     string `json:"session_id"`
	JoinSecret    string `json:"join_secret,omitempty"` // made by the Server; what a further connection of the session presents
	AccountID     string `json:"account_id,omitempty"`
	StoreID       string `json:"store_id,omitempty"`
	ServerVersion string `json:"server_version,omitempty"`
	Region        string `json:"region,omitempty"`
	Connections   int    `json:"connections,omitempty"` // how many connections the server wants of this session; 0 leaves it to the client
}

// Bind asks for an endpoint.
type Bind struct {
	URL              string `json:"url"`
	Binding          string `json:"binding,omitempty"`
	Name             string `json:"name,omitempty"`
	Description      string `json:"description,omitempty"`
	Metadata         string `json:"metadata,omitempty"`
	UpstreamURL      string `json:"upstream_url,omitempty"`
	UpstreamProtocol string `json:"upstream_protocol,omitempty"`
	HostMode         string `json:"host_mode,omitempty"`
	ResumeSecret     string `json:"resume_secret,omitempty"` // of this process' previous bind of the endpoint
	PoolingEnabled   bool   `json:"pooling_enabled,omitempty"`
}

// Bound is the endpoint that a session now holds.
type Bound struct {
	EndpointID   string `json:"endpoint_id"`
	URL          string `json:"url"`
	ResumeSecret string `json:"resume_secret,omitempty"`
}

// RequestLine is one request for the agent's screen.
type RequestLine struct {
	EndpointID string        `json:"endpoint_id"`
	Method     string        `json:"method"`
	Path       string        `json:"path"`
	Status     int           `json:"status"`
	Duration   time.Duration `json:"duration"` // nanoseconds
	At         time.Time     `json:"at"`
}
