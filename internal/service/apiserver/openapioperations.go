// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "github.com/fairlead-dev/fairlead/internal/account"

// operations describes every method of every route, by "METHOD pattern".
var operations = withBackends(map[string]operation{
	"GET /openapi.json": {id: "getDescription", summary: "This description",
		answers: map[int]any{200: schema{"type": "object"}}},

	"GET /events": {id: "listEvents", summary: "List or watch what happened",
		query:   []string{"before_id", "limit", "type", "object_id", "watch", "resource_version"},
		answers: map[int]any{200: auditList{}}, watch: account.AuditWatchEvent{}},
	"GET /events/{id}": {id: "getEvent", summary: "Read an event", answers: map[int]any{200: account.AuditEvent{}}},

	"GET /endpoints": {id: "listEndpoints", summary: "List or watch endpoints",
		query: []string{"before_id", "limit", "binding", "endpoint_type", "url", "owner_cluster", "watch",
			"resource_version"},
		answers: map[int]any{200: endpointList{}}, watch: account.EndpointEvent{}},
	"POST /endpoints": {id: "createEndpoint", summary: "Make an endpoint of type cloud", body: endpointBody(),
		answers: map[int]any{201: account.Endpoint{}}},
	"GET /endpoints/{id}": {id: "getEndpoint",
		summary: "Read an endpoint; secrets of its traffic_policy are shown as redacted:…",
		answers: map[int]any{200: account.Endpoint{}}},
	"PATCH /endpoints/{id}": {id: "updateEndpoint",
		summary: "Change an endpoint of type cloud; a redacted:… in traffic_policy keeps the secret",
		body:    endpointBody(),
		answers: map[int]any{200: account.Endpoint{}}},
	"DELETE /endpoints/{id}": {id: "deleteEndpoint",
		summary: "Delete an endpoint of type cloud, or an offline one of an agent that has an owner; its id stays " +
			"reserved for its URL", answers: map[int]any{204: nil}},

	"GET /app/users": {id: "listApplicationUsers", summary: "List the people who logged in at endpoints",
		query: userParameters, answers: map[int]any{200: appUserList{}}},
	"GET /app/users/{id}": {id: "getApplicationUser", summary: "Read a user",
		answers: map[int]any{200: account.User{}}},
	"DELETE /app/users/{id}": {id: "revokeApplicationUser",
		summary: "Delete a user and end all their sessions, with what they have open", answers: map[int]any{204: nil}},
	"DELETE /app/users/{id}/sessions": {id: "endApplicationUserSessions",
		summary: "End all sessions of a user, with what they have open, and keep the user",
		answers: map[int]any{204: nil}},
	"GET /app/users/{id}/endpoints": {id: "listAccessedEndpoints", summary: "List where a user has been",
		answers: map[int]any{200: accessedList{}}},
	"GET /app/sessions": {id: "listApplicationSessions", summary: "List the sessions of users",
		query: appSessionParameters, answers: map[int]any{200: appSessionList{}}},
	"GET /app/sessions/{id}": {id: "getApplicationSession", summary: "Read a session of a user",
		answers: map[int]any{200: account.AppSession{}}},
	"DELETE /app/sessions/{id}": {id: "revokeApplicationSession", summary: "End a session, with what it has open",
		answers: map[int]any{204: nil}},

	"GET /tunnels": {id: "listTunnels", summary: "List the labelled tunnels that are online", query: pagingParameters,
		answers: map[int]any{200: tunnelList{}}},
	"GET /tunnels/{id}": {id: "getTunnel", summary: "Read a labelled tunnel",
		answers: map[int]any{200: account.LabelledTunnel{}}},

	"GET /kubernetes_operators": {id: "listOperators", summary: "List operators", query: pagingParameters,
		answers: map[int]any{200: operatorList{}}},
	"POST /kubernetes_operators": {id: "registerOperator",
		summary: "Register an operator; with a cluster_uid again and again", body: operatorFields(true),
		answers: map[int]any{201: account.Operator{}, 200: account.Operator{}}},
	"GET /kubernetes_operators/{id}": {id: "getOperator", summary: "Read an operator",
		answers: map[int]any{200: account.Operator{}}},
	"PATCH /kubernetes_operators/{id}": {id: "updateOperator", summary: "Change an operator",
		body:    operatorFields(false),
		answers: map[int]any{200: account.Operator{}}},
	"DELETE /kubernetes_operators/{id}": {id: "deleteOperator",
		summary: "Delete an operator; its forwarders lose their sessions", answers: map[int]any{204: nil}},
	"GET /kubernetes_operators/{id}/bound_endpoints": {id: "listBoundEndpoints",
		summary: "List the endpoints that the operator's selectors admit; a page may be short",
		query:   pagingParameters, answers: map[int]any{200: boundList{}}},

	"GET /tunnel_sessions": {id: "listTunnelSessions", summary: "List the agents that are connected",
		query:   pagingParameters,
		answers: map[int]any{200: sessionList{}}},
	"GET /tunnel_sessions/{id}": {id: "getTunnelSession", summary: "Read a session",
		answers: map[int]any{200: account.TunnelSession{}}},
	"POST /tunnel_sessions/{id}/stop": {id: "stopTunnelSession", summary: "End a session; its agent exits",
		body: fields(schema{}), optional: true,
		answers: map[int]any{204: nil}},
	"POST /tunnel_sessions/{id}/restart": {id: "restartTunnelSession",
		summary: "End a session; its agent connects again",
		body:    fields(schema{}), optional: true,
		answers: map[int]any{204: nil}},

	"GET /api_keys": {id: "listAPIKeys", summary: "List API keys", query: pagingParameters,
		answers: map[int]any{200: apiKeyList{}}},
	"POST /api_keys": {id: "createAPIKey", summary: "Make an API key; token is its secret, this once",
		body: apiKeyFields(), answers: map[int]any{201: account.APIKey{}}},
	"GET /api_keys/{id}": {id: "getAPIKey", summary: "Read an API key", answers: map[int]any{200: account.APIKey{}}},
	"PATCH /api_keys/{id}": {id: "updateAPIKey", summary: "Change an API key", body: apiKeyFields(),
		answers: map[int]any{200: account.APIKey{}}},
	"DELETE /api_keys/{id}": {id: "deleteAPIKey", summary: "Delete an API key; its watches and sessions end",
		answers: map[int]any{204: nil}},

	"GET /credentials": {id: "listCredentials", summary: "List authtokens", query: pagingParameters,
		answers: map[int]any{200: authtokenList{}}},
	"POST /credentials": {id: "createCredential", summary: "Make an authtoken; token is its secret, this once",
		body:    authtokenFields(),
		answers: map[int]any{201: account.Authtoken{}}},
	"GET /credentials/{id}": {id: "getCredential", summary: "Read an authtoken",
		answers: map[int]any{200: account.Authtoken{}}},
	"PATCH /credentials/{id}": {id: "updateCredential", summary: "Change an authtoken", body: authtokenFields(),
		answers: map[int]any{200: account.Authtoken{}}},
	"DELETE /credentials/{id}": {id: "deleteCredential", summary: "Delete an authtoken; its sessions end",
		answers: map[int]any{204: nil}},

	"GET /clusters": {id: "listClusters", summary: "List the clusters whose ServiceAccounts act for the account",
		query: pagingParameters, answers: map[int]any{200: clusterList{}}},
	"POST /clusters": {id: "createCluster", summary: "Trust a cluster's ServiceAccounts", body: clusterFields(),
		answers: map[int]any{201: account.Cluster{}}},
	"GET /clusters/{id}": {id: "getCluster", summary: "Read a cluster", answers: map[int]any{200: account.Cluster{}}},
	"PATCH /clusters/{id}": {id: "updateCluster",
		summary: "Change a cluster; what its tokens have open and may no longer ends",
		body:    clusterFields(), answers: map[int]any{200: account.Cluster{}}},
	"DELETE /clusters/{id}": {id: "deleteCluster", summary: "Delete a cluster; what its tokens have open ends",
		answers: map[int]any{204: nil}},
	"POST /cluster_keys": {id: "handOverClusterKeys",
		summary: "Add keys to the cluster whose operator's ServiceAccount token is presented",
		body:    fields(schema{"jwks": keySetFields()}), answers: map[int]any{200: account.KeyHandover{}}},
})

// fields is the body of a request: none of the fields is required.
func fields(properties schema) schema {
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}

// inner is an object in a body.
func inner(properties schema) schema {
	of := fields(properties)
	of["type"] = []string{"object", "null"}
	return of
}

func text(maxBytes int) schema {
	return schema{"type": []string{"string", "null"}, "maxLength": maxBytes}
}

// ignored is a field that is accepted and has no meaning.
func ignored() schema {
	return schema{"type": []string{"string", "null"}, "description": "accepted and ignored"}
}

func texts(of schema, most int) schema {
	return schema{"type": []string{"array", "null"}, "items": of, "maxItems": most}
}

func moment() schema { return schema{"type": []string{"string", "null"}, "format": "date-time"} }

func operatorFields(create bool) schema {
	all := schema{
		"description": text(account.MaxDescription), "metadata": text(account.MaxMetadata),
		"region":           text(account.MaxRegion),
		"enabled_features": texts(schema{"type": "string", "enum": account.Features()}, len(account.Features())),
		"deployment": inner(schema{"name": text(account.MaxShortText), "namespace": text(account.MaxShortText),
			"version":      text(account.MaxShortText),
			"cluster_name": text(account.MaxShortText)}),
		"binding": inner(schema{"endpoint_selectors": texts(schema{"type": "string", "maxLength": account.MaxSelector},
			account.MaxSelectors),
			"ingress_endpoint": text(account.MaxShortText), "csr": ignored()}),
	}
	if create {
		all["cluster_uid"] = text(account.MaxShortText)
	} else {
		all["id"] = sameID()
	}
	return fields(all)
}

func apiKeyFields() schema {
	return fields(schema{"id": sameID(), "description": text(account.MaxDescription),
		"metadata": text(account.MaxMetadata), "expires_at": moment(), "owner_id": ignored(),
		"scopes": texts(schema{"type": "string", "enum": account.Scopes()}, len(account.Scopes())),
		"acl": texts(schema{"type": "string", "maxLength": account.MaxACLRule,
			"pattern": "^(export|bind|backend|internal):."}, account.MaxACLRules),
		"cluster_uid": text(account.MaxUID)})
}

func authtokenFields() schema {
	return fields(schema{"id": sameID(), "description": text(account.MaxDescription),
		"metadata": text(account.MaxMetadata), "expires_at": moment(), "owner_id": ignored(),
		"acl": texts(schema{"type": "string", "maxLength": account.MaxACLRule, "pattern": "^(bind|connect):."},
			account.MaxACLRules)})
}
