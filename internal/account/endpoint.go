// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of the text fields of a resource, in bytes.
const (
	MaxDescription = 255
	MaxMetadata    = 4096
	MaxName        = 128
)

// Values of Endpoint.Type, of its bindings and of Endpoint.Status.
const (
	TypeAgent = "agent"
	TypeCloud = "cloud"

	BindingKubernetes = "kubernetes"
	BindingInternal   = "internal"
	BindingPublic     = "public"
	// BindingClusterset is that of what clusters export by ServiceExports. Only exporters make such
	// endpoints, and operators with clusterset.enabled list them.
	BindingClusterset = "clusterset"

	StatusOnline  = "online"
	StatusOffline = "offline"
)

// Ref points to another resource.
type Ref struct {
	ID  string `json:"id"`
	URI string `json:"uri"`
}

// Endpoint is one endpoint of an account. Its id outlives its connections: a Service in every
// cluster is named after it. URI fields are filled in by the API server. Times are UTC.
type Endpoint struct {
	ID        string   `json:"id"`
	URI       string   `json:"uri"`
	URL       string   `json:"url"`
	PublicURL string   `json:"public_url"` // = URL
	Proto     string   `json:"proto"`      // = Scheme
	Scheme    string   `json:"scheme"`
	HostPort  string   `json:"hostport"`
	Host      string   `json:"host"`
	Port      int      `json:"port"`
	Type      string   `json:"type"`
	Bindings  []string `json:"bindings"` // exactly one

	EndpointSettings

	TunnelSession   *Ref            `json:"tunnel_session"`
	Principal       *Ref            `json:"principal"`
	Owner           *Owner          `json:"owner"` // nil = none
	Region          string          `json:"region"`
	CreatedAt       time.Time       `json:"created_at"`
	UpdatedAt       time.Time       `json:"updated_at"`
	Status          string          `json:"status"`
	OfflineSince    *time.Time      `json:"offline_since"`
	ProjectionID    string          `json:"projection_id"`
	BackendID       string          `json:"backend_id"`
	TrafficPolicy   string          `json:"traffic_policy,omitempty"` // lists and watches leave it out
	ServiceExport   *ServiceExport  `json:"service_export"`           // nil = none
	ResourceVersion ResourceVersion `json:"resource_version"`

	AccountID string `json:"-"`
}

// NewEndpoint returns an endpoint of the binding with the URL, and nothing else.
func NewEndpoint(binding string, u EndpointURL) Endpoint {
	return Endpoint{Bindings: []string{binding}, URL: u.String(), Scheme: u.Scheme, Host: u.Host, Port: u.Port}
}

// ParsedURL returns the parts of URL.
func (e *Endpoint) ParsedURL() EndpointURL {
	return EndpointURL{Scheme: e.Scheme, Host: e.Host, Port: e.Port}
}

// EndpointSettings are the fields of an endpoint that its agent states anew at each bind. A cloud
// endpoint has no upstream.
type EndpointSettings struct {
	Name             string `json:"name"`
	Description      string `json:"description"`
	Metadata         string `json:"metadata"`
	PoolingEnabled   bool   `json:"pooling_enabled"` // share the URL with others that do
	UpstreamURL      string `json:"upstream_url"`
	UpstreamProtocol string `json:"upstream_protocol"` // "http1", "http2" or "" for tcp
	// ServiceLabels are labels for the Services of clusters that admit them: KEY=VALUE,KEY=VALUE.
	ServiceLabels string `json:"service_labels"`
	// SealKey is the fingerprint of the key by which the agent seals connections, as it says; "" =
	// connections are not sealed. It is for people: forwarders believe no word of it.
	SealKey string `json:"seal_key"`
	// HostMode is what the edge does with Host: HostPassthrough, HostRewrite or a literal value.
	HostMode string `json:"-"`
}

// Sealed reports whether the agent serves sealed connections only.
func (s *EndpointSettings) Sealed() bool { return s.SealKey != "" }

// HTTP2 reports whether the upstream speaks HTTP/2.
func (s *EndpointSettings) HTTP2() bool { return s.UpstreamProtocol == "http2" }

// validate adds the broken rules of every field by itself.
func (s *EndpointSettings) validate(r *rules) {
	r.text("name", s.Name, MaxName)
	r.text("description", s.Description, MaxDescription)
	r.text("metadata", s.Metadata, MaxMetadata)
	r.text("upstream_url", s.UpstreamURL, MaxUpstreamURL)
	if _, err := ParseServiceLabels(s.ServiceLabels); err != nil {
		r.add("service_labels", s.ServiceLabels, err.Error())
	}
	r.text("seal_key", s.SealKey, MaxSealKey)
	r.text("host_mode", s.HostMode, MaxHostMode)
	if !slices.Contains([]string{"", "http1", "http2"}, s.UpstreamProtocol) {
		r.add("upstream_protocol", s.UpstreamProtocol, "must be http1, http2 or empty")
	}
}

// Values of EndpointSettings.HostMode other than a literal host.
const (
	HostPassthrough = "passthrough"
	HostRewrite     = "rewrite"
)

const ruleHostMode = "must be passthrough, rewrite, or a host name with an optional port"

// ValidateHTTPOptions checks the upstream protocol and the host mode, which only http endpoints
// have. Both may be empty; for a tcp endpoint the host mode may also be HostPassthrough. It lists
// every broken rule as CodeInvalid.
func ValidateHTTPOptions(scheme, upstreamProtocol, hostMode string) error {
	const none = "a tcp endpoint has none; leave it out"
	var r rules
	tcp := scheme == "tcp"
	if tcp && upstreamProtocol != "" {
		r.add("upstream_protocol", upstreamProtocol, none)
	}
	switch {
	case hostMode == "" || hostMode == HostPassthrough:
	case tcp:
		r.add("host_mode", hostMode, none)
	case !validHostMode(hostMode):
		r.add("host_mode", hostMode, ruleHostMode)
	}
	return r.err()
}

// validHostMode reports whether v is a mode or a valid Host header.
func validHostMode(v string) bool {
	if v == HostPassthrough || v == HostRewrite {
		return true
	}
	host := v
	if h, port, err := net.SplitHostPort(v); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
		host = h
	}
	if net.ParseIP(host) != nil {
		return true
	}
	outside := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	}
	return host != "" && len(host) <= 253 && !strings.ContainsFunc(host, outside)
}

// LabelledTunnel is an agent's tunnel that belongs to tunnel groups by its labels, not to an
// endpoint by a URL. It lives as long as its session holds it.
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

// LabelledTunnels reads the labelled tunnels that are online. An empty Labels matches all.
type LabelledTunnels interface {
	LabelledTunnel(ctx context.Context, accountID, id string) (*LabelledTunnel, error)
	ListLabelledTunnels(ctx context.Context, accountID string, labels map[string]string, p Page) (
		page []LabelledTunnel, more bool, err error)
}

// TunnelStarter records labelled tunnels of live sessions. What a session holds ends with
// Binder.EndSession, too.
type TunnelStarter interface {
	// StartTunnel records a tunnel of a live session, of AccountID, TunnelSession, Labels,
	// Metadata, ForwardsTo and UpstreamProtocol of t; the rest is the store's. CodeLimit when the
	// account has too many. It ends the tunnel that resume names; replacedSessionID is the other
	// session that held that one, which has to be closed, or "". A tunnel of the session that has
	// resume.NewHash already is returned as it is: its start was asked twice.
	StartTunnel(ctx context.Context, t LabelledTunnel, resume TunnelResume) (started *LabelledTunnel,
		replacedSessionID string, err error)
	// EndTunnel deletes a tunnel that the session holds. Not held: no-op.
	EndTunnel(ctx context.Context, accountID, id, sessionID string) error
}

// TunnelResume lets an agent's new session replace a tunnel of its previous one.
type TunnelResume struct {
	Secret  string // resume secret of the replaced tunnel, "" for none
	NewHash []byte // HashSecret of the new tunnel's resume secret
}

// Validate checks the fields of a labelled tunnel that its agent sets, and lists every broken rule
// as CodeInvalid.
func (t *LabelledTunnel) Validate() error {
	r, e := rules(FieldsOf(ValidateLabels(t.Labels))), t.Endpoint()
	e.EndpointSettings.validate(&r)
	return r.err()
}

// Endpoint returns the tunnel as an endpoint that is online and has no URL.
func (t *LabelledTunnel) Endpoint() Endpoint {
	return Endpoint{ID: t.ID, AccountID: t.AccountID, Type: TypeAgent, Status: StatusOnline, Region: t.Region,
		TunnelSession: &t.TunnelSession, CreatedAt: t.StartedAt, UpdatedAt: t.StartedAt,
		EndpointSettings: EndpointSettings{Metadata: t.Metadata, UpstreamURL: t.ForwardsTo,
			UpstreamProtocol: t.UpstreamProtocol, HostMode: HostPassthrough}}
}

// Page selects a page of a list, newest first. BeforeID is a position and need not exist. Limit 0
// means DefaultPageLimit.
type Page struct {
	BeforeID string
	Limit    int
}

// Sizes of a page.
const (
	DefaultPageLimit = 100
	MaxPageLimit     = 1000
)

// EndpointFilter narrows a list or a watch of endpoints; empty fields match everything.
type EndpointFilter struct {
	Bindings     []string // any of them
	Type         string   // TypeAgent or TypeCloud
	URL          string   // normalised
	OwnerCluster string   // the owner's cluster; for lists only
}

// Matches reports whether e passes the filter.
func (f EndpointFilter) Matches(e *Endpoint) bool {
	return (len(f.Bindings) == 0 || len(e.Bindings) == 1 && slices.Contains(f.Bindings, e.Bindings[0])) &&
		(f.Type == "" || e.Type == f.Type) &&
		(f.URL == "" || e.URL == f.URL) &&
		(f.OwnerCluster == "" || e.Owner != nil && e.Owner.Cluster == f.OwnerCluster)
}

// EndpointPage is a page of endpoints with the version at which it was read. More reports that
// older ones follow.
type EndpointPage struct {
	Endpoints []Endpoint
	More      bool
	Version   ResourceVersion
	StoreID   string
}

// Endpoints reads endpoints. Every method is scoped to one account; another account's id is
// CodeNotFound.
type Endpoints interface {
	Endpoint(ctx context.Context, accountID, id string) (*Endpoint, error)
	ListEndpoints(ctx context.Context, accountID string, f EndpointFilter, p Page) (*EndpointPage, error)
	// EndpointReserved reports whether the id was an endpoint's that is gone and may come back: its
	// agent has been offline for long, or has ended it.
	EndpointReserved(ctx context.Context, accountID, id string) (bool, error)
}

// EventType is what happened to an object.
type EventType string

// The event types of the watch (docs/reference/api/watch.md). BOOKMARK carries only a version.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// EndpointEvent is one line of the watch: a change with the endpoint's full snapshot after it
// (before it, for DELETED).
type EndpointEvent struct {
	Type            EventType       `json:"type"`
	ResourceVersion ResourceVersion `json:"resource_version"`
	Endpoint        *Endpoint       `json:"endpoint,omitempty"`
}

// EventLog reads the sequenced log of changes. The event row is written in the transaction of its
// change.
type EventLog interface {
	// EndpointEvents returns at most limit events after v, in order, and the version up to which
	// the log was read, which is at least that of the last event. The events are the caller's own.
	// CodeGone when v was compacted, lies in the future or is another epoch's.
	EndpointEvents(ctx context.Context, accountID string, v ResourceVersion, f EndpointFilter,
		limit int) ([]EndpointEvent,
		ResourceVersion, error)
	// Subscribe returns a channel that receives (capacity 1, coalesced) after each commit of the
	// account; it is only a wake-up. The caller calls cancel when done.
	Subscribe(accountID string) (wake <-chan struct{}, cancel func())
}
