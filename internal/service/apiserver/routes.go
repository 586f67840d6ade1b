// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// The scopes of which a key needs one for a method of a route. Admin may do everything.
var (
	adminOnly      []account.Scope
	readScopes     = []account.Scope{account.ScopeRead}
	watchScopes    = []account.Scope{account.ScopeRead, account.ScopeOperator}
	operatorScopes = []account.Scope{account.ScopeOperator}
	identityScopes = []account.Scope{account.ScopeRead, account.ScopeIdentities}
	revokeScopes   = []account.Scope{account.ScopeIdentities}
	endpointScopes = []account.Scope{account.ScopeRead, account.ScopeOperator, account.ScopeExporter}
	exportScopes   = []account.Scope{account.ScopeExporter}
	anyScope       = account.Scopes()
)

// methods are what a route offers, by HTTP method.
type methods = map[string]method

// method is how a route serves one HTTP method.
type method struct {
	scopes        []account.Scope
	handle        handler
	whileDraining bool // although it writes
}

// readMethods returns the methods of a route that is only read.
func readMethods(scopes []account.Scope, get handler) methods {
	return methods{http.MethodGet: {scopes: scopes, handle: get}}
}

// listMethods returns the methods of a list to which objects can be added.
func listMethods(readScopes []account.Scope, list handler, writeScopes []account.Scope, create handler) methods {
	return methods{http.MethodGet: {scopes: readScopes, handle: list},
		http.MethodPost: {scopes: writeScopes, handle: create}}
}

// objectMethods returns the methods of an object.
func objectMethods(
	readScopes []account.Scope, get handler, writeScopes []account.Scope, update, remove handler,
) methods {
	return methods{http.MethodGet: {scopes: readScopes, handle: get},
		http.MethodPatch:  {scopes: writeScopes, handle: update},
		http.MethodDelete: {scopes: writeScopes, handle: remove}}
}

// actionMethods returns the methods of an action on an object.
func actionMethods(action handler) methods {
	return methods{http.MethodPost: {scopes: adminOnly, handle: action}}
}

// routes returns every route of the API, by pattern.
func (s *server) routes() map[string]methods {
	store := s.opt.Store
	operators, keys, tokens := s.operators(), s.apiKeys(), s.authtokens()
	sessions, tunnels, events, clusters := s.sessions(), s.tunnels(), s.auditEvents(nil), s.clusters()
	routes := map[string]methods{
		"/openapi.json": readMethods(anyScope, s.getDescription),
		"/endpoints":    listMethods(endpointScopes, s.listEndpoints, exportScopes, s.createEndpoint),
		"/endpoints/{id}": objectMethods(endpointScopes, s.endpoints(nil).getHandler(s.readEndpoint),
			exportScopes, s.updateEndpoint, s.deleteEndpoint),
		"/events":       readMethods(readScopes, s.listAuditEvents),
		"/events/{id}":  readMethods(readScopes, events.getHandler(inAccount(store.AuditEvent))),
		"/tunnels":      readMethods(readScopes, tunnels.listHandler(s.listTunnels)),
		"/tunnels/{id}": readMethods(readScopes, tunnels.getHandler(inAccount(store.LabelledTunnel))),
		"/kubernetes_operators": listMethods(watchScopes, operators.listHandler(s.listOperators),
			operatorScopes, s.upsertOperator),
		"/kubernetes_operators/{id}": objectMethods(watchScopes, operators.getHandler(s.readOperator),
			operatorScopes, s.updateOperator, s.deleteOperator),
		"/kubernetes_operators/{id}/bound_endpoints": readMethods(watchScopes, s.listBoundEndpoints),
		"/tunnel_sessions":                           readMethods(readScopes, sessions.listHandler(s.listSessions)),
		"/tunnel_sessions/{id}": readMethods(readScopes,
			sessions.getHandler(inAccount(store.TunnelSession))),
		"/tunnel_sessions/{id}/stop":    actionMethods(s.stopSession),
		"/tunnel_sessions/{id}/restart": actionMethods(s.restartSession),
		"/api_keys": listMethods(watchScopes, keys.listHandler(s.listAPIKeys), adminOnly,
			keys.createHandler),
		"/api_keys/{id}": objectMethods(watchScopes, keys.getHandler(s.readAPIKey),
			adminOnly, keys.updateHandler, deleteHandler(store.DeleteAPIKey)),
		"/credentials": listMethods(readScopes, tokens.listHandler(s.listAuthtokens), adminOnly, tokens.createHandler),
		"/credentials/{id}": objectMethods(readScopes, tokens.getHandler(tokens.read),
			adminOnly, tokens.updateHandler, deleteHandler(store.DeleteAuthtoken)),
		"/clusters": listMethods(readScopes, clusters.listHandler(s.listClusters), adminOnly, clusters.createHandler),
		"/clusters/{id}": objectMethods(readScopes, clusters.getHandler(clusters.read),
			adminOnly, clusters.updateHandler, deleteHandler(store.DeleteCluster)),
		"/cluster_keys": {http.MethodPost: {scopes: operatorScopes, handle: s.handOverKeys}},
	}
	s.addBackendRoutes(routes)
	s.addIdentityRoutes(routes)
	return routes
}
