// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// The scopes of which a key needs one.
var (
	readScopes     = []account.Scope{account.ScopeRead}
	watchScopes    = []account.Scope{account.ScopeRead, account.ScopeOperator}
	endpointScopes = []account.Scope{account.ScopeRead, account.ScopeOperator, account.ScopeExporter}
	identityScopes = []account.Scope{account.ScopeRead, account.ScopeIdentities}
	revokeScopes   = []account.Scope{account.ScopeIdentities}
	operatorScopes = []account.Scope{account.ScopeOperator}
	exportScopes   = []account.Scope{account.ScopeExporter}
)

// table has every resource.
var table = append([]Resource{
	Resource{Path: Description, Read: account.Scopes()}.with(
		op("GET", "", "getDescription", "This description").answering(map[int]any{http.StatusOK: json.RawMessage{}})),
	events, endpoints, users, appSessions, tunnels, operators, tunnelSessions, apiKeys, credentials, clusters,
	clusterKeys,
}, backends()...)

var events = Resource{Path: Events, Noun: "event", IDPrefix: account.PrefixEvent, Read: readScopes,
	Object: account.AuditEvent{}, List: page("AuditList", "events", account.AuditEvent{}, Version{}),
	Watch:   account.AuditWatchEvent{},
	Columns: []Column{{"TIME", "occurred_at"}, {"TYPE", "type"}, {"OBJECT", "object.id"}},
	Wide:    []Column{{"BY", "principal.id"}, {"DETAILS", "details"}},
}.with(
	op("GET", "", "listEvents", "List or watch what happened", eventQuery...),
	op("GET", "/{id}", "getEvent", "Read an event"))

var endpoints = Resource{Path: Endpoints, Noun: "endpoint", IDPrefix: account.PrefixEndpoint,
	Read: endpointScopes, Write: exportScopes,
	Object: account.Endpoint{}, List: page("EndpointList", "endpoints", account.Endpoint{}, Version{}, Origin{}),
	Watch:   account.EndpointEvent{},
	Columns: []Column{{"URL", "url"}, {"STATUS", "status"}, {"BINDING", "bindings"}, {"ID", "id"}},
	Wide: []Column{{"TYPE", "type"}, {"NAME", "name"}, {"UPSTREAM", "upstream_url"}, {"BACKEND", "backend_id"},
		{"OWNER", "owner"}, {"CREATED", "created_at"}},
	Fields: common(
		Field{Name: "url", AtCreation: true, Help: "`URL` such as http://shop.demo; required"},
		Field{Name: "type", Type: Choice, Values: []any{account.TypeCloud, "", nil}},
		Field{Name: "bindings", Type: ListOf, Max: 1, Items: &Field{Type: Choice, Values: Bindings()},
			Flag: "binding", AtCreation: true, Help: "`BINDING`: kubernetes, internal or public; default kubernetes"},
		Field{Name: "name", Max: account.MaxName, AtCreation: true,
			Help: "`NAME`, which tells members of a pool apart"},
		Field{Name: "backend_id",
			Help: "`ID` of the backend for calls that the traffic policy does not answer or forward; \"\" for none"},
		Field{Name: "traffic_policy", Max: account.MaxTrafficPolicy, Flag: "traffic-policy-file", FromFile: true,
			Help: "`FILE` with a traffic policy, YAML or JSON; `fairlead policy check` lists its mistakes"},
		Field{Name: "pooling_enabled", Type: Bool, Help: "share the URL with other cloud endpoints that do, too"},
		Field{Name: "owner", Type: Object, Fields: []Field{
			{Name: "cluster", Max: account.MaxUID},
			{Name: "kind", Type: Choice, Values: []any{account.KindCloudEndpoint, account.KindServiceExport, nil}},
			{Name: "namespace", Max: account.MaxNamespace},
			{Name: "name", Max: account.MaxShortText},
			{Name: "uid", Max: account.MaxUID}}},
		Field{Name: "service_export", Type: Object, Fields: exportFields}),
}.with(
	op("GET", "", "listEndpoints", "List or watch endpoints", endpointQuery...),
	op("POST", "", "createEndpoint", "Make an endpoint of type cloud"),
	op("GET", "/{id}", "getEndpoint", "Read an endpoint; secrets of its traffic_policy are shown as redacted:…"),
	op("PATCH", "/{id}", "updateEndpoint",
		"Change an endpoint of type cloud; a redacted:… in traffic_policy keeps the secret"),
	op("DELETE", "/{id}", "deleteEndpoint",
		"Delete an endpoint of type cloud, or an offline one of an agent that has an owner; "+
			"its id stays reserved for its URL"))

var exportFields = []Field{
	{Name: "type", Type: Choice, Values: orUnset("ServiceExport", "type")},
	{Name: "ports", Type: ListOf, Max: account.MaxExportPorts, Items: &Field{Type: Object, Fields: []Field{
		{Name: "name", Max: account.MaxNamespace},
		{Name: "protocol", Type: Choice, Values: orUnset("ServiceExportPort", "protocol")},
		{Name: "port", Type: Number, Min: 1, Max: 65535},
		{Name: "app_protocol", Max: account.MaxServiceExport}}}},
	{Name: "session_affinity", Type: Choice, Values: orUnset("ServiceExport", "session_affinity")},
	{Name: "session_affinity_seconds", Type: Number, Min: 1, Max: 86400},
	{Name: "internal_traffic_policy", Type: Choice, Values: orUnset("ServiceExport", "internal_traffic_policy")},
	{Name: "traffic_distribution", Max: account.MaxShortText},
	{Name: "ip_families", Type: ListOf, Max: 2, Items: &Field{Type: Choice, Values: []string{"IPv4", "IPv6"}}},
	{Name: "labels", Type: MapOf, Items: &Field{}},
	{Name: "annotations", Type: MapOf, Items: &Field{}},
	{Name: "ready", Type: Bool},
	{Name: "pods", Type: ListOf, Max: account.MaxExportPods, Items: &Field{Type: Object, Fields: []Field{
		{Name: "hostname", Max: account.MaxNamespace}, {Name: "ready", Type: Bool}}}},
}

var users = Resource{Path: Users, Noun: "identity", IDPrefix: account.PrefixUser,
	Read: identityScopes, Write: revokeScopes, WhileDraining: true,
	Object: account.User{}, List: page("AppUserList", "application_users", account.User{}),
	Columns: []Column{{"ID", "id"}, {"USER", "username"}, {"PROVIDER", "identity_provider.name"}},
	Wide: []Column{{"EMAIL", "email"}, {"NAME", "name"}, {"PROVIDER ID", "provider_user_id"},
		{"LAST ACTIVE", "last_active"}},
}.with(
	op("GET", "", "listApplicationUsers", "List the people who logged in at endpoints", userQuery...),
	op("GET", "/{id}", "getApplicationUser", "Read a user"),
	op("DELETE", "/{id}", "revokeApplicationUser",
		"Delete a user and end all their sessions, with what they have open"),
	op("DELETE", "/{id}/sessions", "endApplicationUserSessions",
		"End all sessions of a user, with what they have open, and keep the user"),
	op("GET", "/{id}/endpoints", "listAccessedEndpoints", "List where a user has been").answering(map[int]any{
		http.StatusOK: List{"AccessedList", "endpoints", account.AccessedEndpoint{}, []any{SelfLink{}}}}))

var appSessions = Resource{Path: AppSessions, Noun: "session", IDPrefix: account.PrefixAppSession,
	Read: identityScopes, Write: revokeScopes, WhileDraining: true,
	Object: account.AppSession{}, List: page("AppSessionList", "application_sessions", account.AppSession{}),
	Columns: []Column{{"ID", "id"}, {"URL", "public_url"}, {"IP", "browser_session.ip_address"}},
	Wide: []Column{{"USER", "application_user.id"}, {"BROWSER", "browser_session.user_agent.browser_name"},
		{"OS", "browser_session.user_agent.os_name"}, {"COUNTRY", "browser_session.location.country_code"},
		{"LAST IP", "last_browser_session.ip_address"}, {"CHANGED", "browser_changed_at"},
		{"LAST ACTIVE", "last_active"}, {"EXPIRES", "expires_at"}},
}.with(
	op("GET", "", "listApplicationSessions", "List the sessions of users", appSessionQuery...),
	op("GET", "/{id}", "getApplicationSession", "Read a session of a user"),
	op("DELETE", "/{id}", "revokeApplicationSession", "End a session, with what it has open"))

var tunnels = Resource{Path: Tunnels, Noun: "labelled tunnel", IDPrefix: account.PrefixTunnel, Read: readScopes,
	Object: account.LabelledTunnel{}, List: page("TunnelList", "tunnels", account.LabelledTunnel{}),
	Columns: []Column{{"ID", "id"}, {"LABELS", "labels"}, {"UPSTREAM", "forwards_to"}},
	Wide:    []Column{{"SESSION", "tunnel_session.id"}, {"STARTED", "started_at"}},
}.with(
	op("GET", "", "listTunnels", "List the labelled tunnels that are online", paging...),
	op("GET", "/{id}", "getTunnel", "Read a labelled tunnel"))

var operators = Resource{Path: Operators, Noun: "operator", IDPrefix: account.PrefixOperator,
	Read: watchScopes, Write: operatorScopes,
	Object: account.Operator{}, List: page("OperatorList", "operators", account.Operator{}),
	Columns: []Column{{"ID", "id"}, {"CLUSTER", "deployment.cluster_name"}, {"LAST SEEN", "last_seen_at"}},
	Wide: []Column{{"NAMESPACE", "deployment.namespace"}, {"NAME", "deployment.name"},
		{"VERSION", "deployment.version"}, {"DESCRIPTION", "description"}},
	Fields: []Field{
		{Name: "id", Only: http.MethodPatch, Description: sameID.Description}, description, metadata,
		{Name: "region", Max: account.MaxRegion, Help: "`TEXT`: the place where it runs"},
		{Name: "cluster_uid", Max: account.MaxShortText, Only: http.MethodPost,
			Help: "`UID` of the cluster; with it, create registers again"},
		{Name: "enabled_features", Type: ListOf, Max: len(account.Features()),
			Items: &Field{Values: account.Features()}, Flag: "feature",
			Help: "`FEATURE`: bindings, ingress or gateway; may be repeated"},
		{Name: "deployment", Type: Object, Fields: []Field{
			{Name: "name", Max: account.MaxShortText, Flag: "deployment-name", Help: "`NAME` of the release"},
			{Name: "namespace", Max: account.MaxShortText, Flag: "deployment-namespace",
				Help: "`NAMESPACE` of the release"},
			{Name: "version", Max: account.MaxShortText, Flag: "deployment-version", Help: "`VERSION` of the operator"},
			{Name: "cluster_name", Max: account.MaxShortText, Help: "`NAME` of the cluster"}}},
		{Name: "binding", Type: Object, Fields: []Field{
			{Name: "endpoint_selectors", Type: ListOf, Max: account.MaxSelectors,
				Items: &Field{Max: account.MaxSelector}, Flag: "endpoint-selector",
				Help: "CEL `EXPRESSION` over ep; may be repeated"},
			{Name: "ingress_endpoint", Max: account.MaxShortText,
				Help: "`TEXT` that is kept for other clients of the API; forwarders do without"},
			ignored("csr")}}},
}.with(
	op("GET", "", "listOperators", "List operators", paging...),
	op("POST", "", "registerOperator", "Register an operator; with a cluster_uid again and again").
		answering(map[int]any{http.StatusCreated: account.Operator{}, http.StatusOK: account.Operator{}}),
	op("GET", "/{id}", "getOperator", "Read an operator"),
	op("PATCH", "/{id}", "updateOperator", "Change an operator"),
	op("DELETE", "/{id}", "deleteOperator", "Delete an operator; its forwarders lose their sessions"),
	op("GET", "/{id}/bound_endpoints", "listBoundEndpoints",
		"List the endpoints that the operator's selectors admit; a page may be short", paging...).
		answering(map[int]any{http.StatusOK: page("BoundList", "endpoints", account.Endpoint{})}))

var tunnelSessions = Resource{Path: TunnelSessions, Noun: "tunnel session", IDPrefix: account.PrefixTunnelSession,
	Read:   readScopes,
	Object: account.TunnelSession{}, List: page("SessionList", "tunnel_sessions", account.TunnelSession{}),
	Columns: []Column{{"ID", "id"}, {"IP", "ip"}, {"CREDENTIAL", "credential.id"}},
	Wide:    []Column{{"OS", "os"}, {"AGENT", "agent_version"}, {"STARTED", "started_at"}},
}.with(
	op("GET", "", "listTunnelSessions", "List the agents that are connected", paging...),
	op("GET", "/{id}", "getTunnelSession", "Read a session"),
	op("POST", "/{id}/stop", "stopTunnelSession", "End a session; its agent exits"),
	op("POST", "/{id}/restart", "restartTunnelSession", "End a session; its agent connects again"))
