// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Role is the kind of client of a session.
type Role string

// The roles.
const (
	RoleAgent     Role = "agent"     // binds endpoints and serves the streams that the server opens
	RoleForwarder Role = "forwarder" // opens streams to the server
)

// MaxURLs bounds the endpoints that a forwarder without an operator calls: each stream looks for its
// own among them.
const MaxURLs = 64

// Hello is the client's first message on every connection: at most 16 KiB as JSON, answered within
// 10 s by a Welcome or an Error.
type Hello struct {
	Role          Role   `json:"role"`
	Token         string `json:"token,omitempty"`
	ClientVersion string `json:"client_version,omitempty"`
	OS            string `json:"os,omitempty"`
	InstanceID    string `json:"instance_id,omitempty"`
	OperatorID    string `json:"operator_id,omitempty"`
	Metadata      string `json:"metadata,omitempty"`
	// URLs are the endpoints that a forwarder without an operator calls, in their normal form; at most
	// MaxURLs.
	URLs []string `json:"urls,omitempty"`
	// ClusterUID is the UID of the cluster's namespace kube-system, of an agent whose token is an
	// API key
	ClusterUID string `json:"cluster_uid,omitempty"`

	// Features are the parts of the protocol that this client supports beyond the first release.
	// The Client sets them.
	Features []Feature `json:"features,omitempty"`

	// SessionID and JoinSecret are set by the Client on all connections of a session but the first.
	SessionID  string `json:"session_id,omitempty"`
	JoinSecret string `json:"join_secret,omitempty"`
}

// Welcome is the server's answer to a Hello it accepts.
type Welcome struct {
	SessionID string `json:"session_id"`
	// JoinSecret is made by the Server. Further connections of the session must present it.
	JoinSecret    string `json:"join_secret,omitempty"`
	AccountID     string `json:"account_id,omitempty"`
	StoreID       string `json:"store_id,omitempty"`
	ServerVersion string `json:"server_version,omitempty"`
	Region        string `json:"region,omitempty"`
	// Connections is the wanted number of the session's connections; 0 = the client decides.
	Connections int `json:"connections,omitempty"`

	// ReplicaID names the server among those that share a store; "" = it is alone.
	ReplicaID string `json:"replica_id,omitempty"`
	// Replicas is how many such servers accept sessions now; 0 = the server is alone.
	Replicas int `json:"replicas,omitempty"`
	// ReplicaAddresses are where this client may reach them. The Server sets them.
	ReplicaAddresses []ReplicaAddress `json:"replica_addresses,omitempty"`
	// Authorities are what a client with FeatureAuthorities trusts from now on, beside what it was
	// given: certificates, DER. The Server sets them.
	Authorities [][]byte `json:"authorities,omitempty"`

	// Features are the parts of the protocol that this server supports beyond the first release.
	// The Server sets them.
	Features []Feature `json:"features,omitempty"`
}

// Feature is a part of the protocol that older peers would silently ignore.
type Feature string

// The features.
const (
	FeatureLabels        Feature = "labels"         // binds of labelled tunnels
	FeatureTrafficPolicy Feature = "traffic_policy" // binds with a traffic policy
	FeatureConnections   Feature = "connections"    // sessions whose number of connections changes
	FeatureReplicas      Feature = "replicas"       // sessions with connections to several servers
	FeatureBindID        Feature = "bind_id"        // labelled tunnels whose bind may be sent twice
	FeatureOwner         Feature = "owner"          // binds with an owner
	FeatureClusterset    Feature = "clusterset"     // binds with BindingClusterset
	FeatureRenew         Feature = "renew"          // sessions whose token is renewed
	// FeatureReplicaAddresses: clients that dial several servers at addresses of their own
	FeatureReplicaAddresses Feature = "replica_addresses"
	FeatureAuthorities      Feature = "authorities" // clients that learn the server's certificate authorities
	FeatureSealed           Feature = "sealed"      // binds and streams of sealed endpoints
	FeaturePairs            Feature = "pairs"       // sealed streams over connections of their own
	FeatureSpares           Feature = "spares"      // sealed streams without a client, of both sides
)

// serverFeatures returns what the welcome names.
func serverFeatures() []Feature {
	all := []Feature{FeatureLabels, FeatureTrafficPolicy, FeatureConnections, FeatureReplicas, FeatureBindID,
		FeatureOwner, FeatureClusterset, FeatureRenew, FeatureSealed, FeatureSpares}
	if canSplice {
		all = append(all, FeaturePairs)
	}
	return all
}

// Bind asks for an endpoint or for a labelled tunnel. The latter has Labels, and no URL nor any
// field of an endpoint.
type Bind struct {
	URL              string            `json:"url"`
	Labels           map[string]string `json:"labels,omitempty"`
	Binding          string            `json:"binding,omitempty"`
	Name             string            `json:"name,omitempty"`
	Description      string            `json:"description,omitempty"`
	Metadata         string            `json:"metadata,omitempty"`
	UpstreamURL      string            `json:"upstream_url,omitempty"`
	UpstreamProtocol string            `json:"upstream_protocol,omitempty"`
	HostMode         string            `json:"host_mode,omitempty"`
	// ServiceLabels are KEY=VALUE,KEY=VALUE for the Services of clusters that admit them.
	ServiceLabels string `json:"service_labels,omitempty"`
	// SealKey is the fingerprint of the key by which the agent seals connections, for people; "" =
	// connections are not sealed.
	SealKey string `json:"seal_key,omitempty"`
	// ResumeSecret is the secret of this process's previous bind of the endpoint.
	ResumeSecret   string `json:"resume_secret,omitempty"`
	PoolingEnabled bool   `json:"pooling_enabled,omitempty"`
	TrafficPolicy  string `json:"traffic_policy,omitempty"` // YAML or JSON
	// ReplacePoolPolicy makes the other members of the pool get this policy, too.
	ReplacePoolPolicy bool `json:"replace_pool_policy,omitempty"`
	// Owner is the object that the endpoint is for, in the credential's cluster; nil = none.
	Owner *Owner `json:"owner,omitempty"`
	// BindID is a secret random text, the same when the bind is sent again because its answer was
	// lost. Session.Bind sets it.
	BindID string `json:"bind_id,omitempty"`
}

// Owner is an object in the cluster that the credential is for.
type Owner struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// BindingClusterset is the Bind.Binding of a port of an exported Service.
const BindingClusterset = "clusterset"

// featureNeed is a feature that a server needs for a bind, with its name for messages.
type featureNeed struct {
	feature Feature
	name    string
}

// serverSupport is the part of a server's welcome about its version.
type serverSupport struct {
	version  string
	features []Feature
}

// missingFeature returns the refusal of a bind that needs a feature which the server does not have,
// and would silently ignore; nil when it has all of them, or b is nil.
func (s serverSupport) missingFeature(b *Bind) error {
	if b == nil {
		return nil
	}
	for _, need := range b.requiredFeatures() {
		if !slices.Contains(s.features, need.feature) {
			return &Error{Code: CodeInvalid,
				Msg: fmt.Sprintf("the server (version %s) does not know %s: update it", s.version, need.name)}
		}
	}
	return nil
}

// requiredFeatures returns the features that a server needs for this bind, the newest first.
func (b *Bind) requiredFeatures() (needs []featureNeed) {
	if b.SealKey != "" {
		needs = append(needs, featureNeed{FeatureSealed, "sealed endpoints"})
	}
	if b.Binding == BindingClusterset {
		needs = append(needs, featureNeed{FeatureClusterset, "exports of Services"})
	}
	if b.Owner != nil {
		needs = append(needs, featureNeed{FeatureOwner, "endpoints of Kubernetes objects"})
	}
	if b.TrafficPolicy != "" || b.ReplacePoolPolicy {
		needs = append(needs, featureNeed{FeatureTrafficPolicy, "traffic policies"})
	}
	if len(b.Labels) > 0 {
		needs = append(needs, featureNeed{FeatureLabels, "labelled tunnels"})
	}
	return needs
}

// Bound is the endpoint or labelled tunnel that a session has bound.
type Bound struct {
	EndpointID   string `json:"endpoint_id"`
	URL          string `json:"url"` // "" for a labelled tunnel
	ResumeSecret string `json:"resume_secret,omitempty"`
	// the oldest endpoint of the bind's owner at this URL; "" without an owner
	OwnerEndpointID string `json:"owner_endpoint_id,omitempty"`
	// ListenerURL is the URL at which the service's own listener answers for a public endpoint: the
	// endpoint's, perhaps with another port; "" without such a listener, and from older servers.
	ListenerURL string `json:"listener_url,omitempty"`
	// Unreachable is why no client reaches a public endpoint; "" = nothing is in the way.
	Unreachable string `json:"unreachable,omitempty"`
}

// protocolVersion is the version of the messages, sent in the hello.
const protocolVersion = 1

// The messages' types. A receiver skips types it does not know.
const (
	typeHello    = "hello"    // client: the first message
	typeWelcome  = "welcome"  // server: the answer to hello
	typeError    = "error"    // server: a refusal, of the request with this id or of the hello
	typeBind     = "bind"     // client
	typeBound    = "bound"    // server: the answer to bind
	typeUnbind   = "unbind"   // client
	typeUnbound  = "unbound"  // server: the answer to unbind
	typeRenew    = "renew"    // client: a later token of the session's subject
	typeRenewed  = "renewed"  // server: the answer to renew
	typeTicket   = "ticket"   // client: a ticket for a raw connection with the server
	typeTicketed = "ticketed" // server: the answer to ticket
	typeDrain    = "drain"    // either: the sender stops within the deadline
	typeStop     = "stop"     // server: the session ends, and why
	typeBye      = "bye"      // either: the sender's last message on this connection; the receiver hangs up

	typeConnections = "connections" // server: how many connections the traffic asks for
	typeReplicas    = "replicas"    // server: how many replicas accept sessions, and where
	typeAuthorities = "authorities" // server: the certificate authorities to trust, beside those that were given
	typeRetire      = "retire"      // client: neither side shall open streams on this connection
	typeRetired     = "retired"     // server: it has no streams left on this connection; its last message there
)

// message is a JSON control message: its type and the part that belongs to the type.
type message struct {
	Type     string    `json:"type"`
	ID       uint64    `json:"id,omitempty"`       // pairs a request with its answer
	Protocol int       `json:"protocol,omitempty"` // the version of the protocol, in a hello
	Hello    *Hello    `json:"hello,omitempty"`
	Welcome  *Welcome  `json:"welcome,omitempty"`
	Bind     *Bind     `json:"bind,omitempty"`
	Bound    *Bound    `json:"bound,omitempty"`
	Unbind   *unbind   `json:"unbind,omitempty"`
	Renew    *renew    `json:"renew,omitempty"`
	Renewed  *renewed  `json:"renewed,omitempty"`
	Ticketed *ticketed `json:"ticketed,omitempty"`
	Drain    *drain    `json:"drain,omitempty"`
	Error    *Error    `json:"error,omitempty"`

	Connections int `json:"connections,omitempty"`
	Replicas    int `json:"replicas,omitempty"`
	// ReplicaAddresses is set in typeReplicas only.
	ReplicaAddresses []ReplicaAddress `json:"replica_addresses,omitempty"`
	Authorities      [][]byte         `json:"authorities,omitempty"`
}

type unbind struct {
	EndpointID string `json:"endpoint_id"`
}

type renew struct {
	Token string `json:"token"`
}

type renewed struct {
	ExpiresAt time.Time `json:"expires_at"`
}

// ticketed is a ticket, and the number that the connection has which presents it.
type ticketed struct {
	Ticket []byte `json:"ticket"`
	PairID uint64 `json:"pair_id"`
}

type drain struct {
	DeadlineMS int64 `json:"deadline_ms"`
}

// parseMessage decodes a message and checks that it has the part that its type requires.
func parseMessage(b []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("decoding a control message: %w", err)
	}
	complete := true
	switch m.Type {
	case typeWelcome:
		complete = m.Welcome != nil
	case typeError, typeStop:
		complete = m.Error != nil
	case typeBind:
		complete = m.Bind != nil
	case typeBound:
		complete = m.Bound != nil
	case typeUnbind:
		complete = m.Unbind != nil
	case typeRenew:
		complete = m.Renew != nil
	case typeRenewed:
		complete = m.Renewed != nil
	case typeTicketed:
		complete = m.Ticketed != nil && len(m.Ticketed.Ticket) == ticketSize && m.Ticketed.PairID != 0
	case typeDrain:
		complete = m.Drain != nil
	}
	if !complete {
		return nil, fmt.Errorf("control message of type %q without its content", m.Type)
	}
	return &m, nil
}

// parseHello decodes the first message. It checks the version first, as a hello of another version
// may have any other content.
func parseHello(b []byte) (*Hello, error) {
	var head struct {
		Type     string `json:"type"`
		Protocol int    `json:"protocol"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Type != typeHello {
		return nil, &Error{Code: CodeInvalid, Msg: "the first message of a connection must be a hello"}
	}
	if head.Protocol != protocolVersion {
		return nil, &Error{Code: CodeVersion, Msg: fmt.Sprintf(
			"the server speaks version %d of the tunnel protocol, the client version %d: update the older one",
			protocolVersion,
			head.Protocol)}
	}
	m, err := parseMessage(b)
	if err != nil || m.Hello == nil {
		return nil, &Error{Code: CodeInvalid, Msg: "the hello is not readable"}
	}
	if h := m.Hello; h.Role != RoleAgent && h.Role != RoleForwarder {
		return nil, &Error{Code: CodeInvalid,
			Msg: fmt.Sprintf("role %q is unknown: it must be %q or %q", h.Role, RoleAgent,
				RoleForwarder)}
	}
	return m.Hello, nil
}
