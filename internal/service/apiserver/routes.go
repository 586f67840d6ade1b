// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
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
	o, store := &s.opt, s.opt.Store
	endpoints := &endpointHandlers{store, s.uris, o.Redactor, o.CheckPolicy, o.Meter, s.watches}
	events := &eventHandlers{store, s.uris, s.watches}
	sessions, tunnels := &sessionHandlers{store, o.SessionEnder, s.uris}, &tunnelHandlers{store, s.uris}
	operators := &operatorHandlers{store: store, endpoints: store, uris: s.uris, matchSelectors: o.MatchSelectors}
	keys, tokens := &apiKeyHandlers{store, s.uris}, &authtokenHandlers{store, s.uris}
	clusters := &clusterHandlers{store, s.uris}
	routes := map[string]methods{
		"/openapi.json": readMethods(anyScope, s.descriptionHandler()),
		"/endpoints":    listMethods(endpointScopes, endpoints.list, exportScopes, endpoints.create),
		"/endpoints/{id}": objectMethods(endpointScopes, endpoints.kind(nil).getHandler(endpoints.read),
			exportScopes, endpoints.update, endpoints.remove),
		"/events":       readMethods(readScopes, events.list),
		"/events/{id}":  readMethods(readScopes, events.kind(nil).getHandler(inAccount(store.AuditEvent))),
		"/tunnels":      readMethods(readScopes, tunnels.kind().listHandler(tunnels.list)),
		"/tunnels/{id}": readMethods(readScopes, tunnels.kind().getHandler(inAccount(store.LabelledTunnel))),
		"/kubernetes_operators": listMethods(watchScopes, operators.kind().listHandler(operators.list),
			operatorScopes, operators.upsert),
		"/kubernetes_operators/{id}": objectMethods(watchScopes, operators.kind().getHandler(operators.read),
			operatorScopes, operators.update, operators.remove),
		"/kubernetes_operators/{id}/bound_endpoints": readMethods(watchScopes, operators.listBound),
		"/tunnel_sessions": readMethods(readScopes,
			sessions.kind().listHandler(pageInAccount(sessions.store.ListTunnelSessions))),
		"/tunnel_sessions/{id}": readMethods(readScopes,
			sessions.kind().getHandler(inAccount(store.TunnelSession))),
		"/tunnel_sessions/{id}/stop":    actionMethods(sessions.stop),
		"/tunnel_sessions/{id}/restart": actionMethods(sessions.restart),
		"/api_keys": listMethods(watchScopes, keys.kind().listHandler(keys.list), adminOnly,
			keys.kind().createHandler),
		"/api_keys/{id}": objectMethods(watchScopes, keys.kind().getHandler(keys.read),
			adminOnly, keys.kind().updateHandler, deleteHandler(store.DeleteAPIKey)),
		"/credentials": listMethods(readScopes, tokens.kind().listHandler(pageInAccount(tokens.store.ListAuthtokens)),
			adminOnly, tokens.kind().createHandler),
		"/credentials/{id}": objectMethods(readScopes, tokens.kind().getHandler(inAccount(store.Authtoken)),
			adminOnly, tokens.kind().updateHandler, deleteHandler(store.DeleteAuthtoken)),
		"/clusters": listMethods(readScopes, clusters.kind().listHandler(pageInAccount(clusters.store.ListClusters)),
			adminOnly, clusters.kind().createHandler),
		"/clusters/{id}": objectMethods(readScopes, clusters.kind().getHandler(inAccount(store.Cluster)),
			adminOnly, clusters.kind().updateHandler, deleteHandler(store.DeleteCluster)),
		"/cluster_keys": {http.MethodPost: {scopes: operatorScopes, handle: clusters.handOverKeys}},
	}
	for _, kind := range account.BackendKinds() {
		h, path := &backendHandlers{kind, store, o.Backends, tunnels, s.uris}, "/backends/"+string(kind)
		backends := h.backends()
		routes[path] = listMethods(readScopes, backends.listHandler(h.list), adminOnly, backends.createHandler)
		routes[path+"/{id}"] = objectMethods(readScopes, backends.getHandler(backends.read), adminOnly,
			backends.updateHandler, deleteHandler(h.remove))
	}
	maps.Copy(routes, (&identityHandlers{store, o.Revoker, s.uris}).routes())
	return routes
}

// routes returns the routes of people and their sessions.
func (h *identityHandlers) routes() map[string]methods {
	user := readMethods(identityScopes, h.users().getHandler(h.readUser))
	user[http.MethodDelete] = h.revokeMethod(account.PrefixUser,
		func(id string) account.RevokeSelector { return account.RevokeSelector{UserID: id} })
	session := readMethods(identityScopes, h.sessions().getHandler(h.readSession))
	session[http.MethodDelete] = h.revokeMethod(account.PrefixAppSession,
		func(id string) account.RevokeSelector { return account.RevokeSelector{SessionID: id} })
	return map[string]methods{
		"/app/users":      readMethods(identityScopes, h.listUsers),
		"/app/users/{id}": user,
		"/app/users/{id}/sessions": {http.MethodDelete: h.revokeMethod(account.PrefixUser,
			func(id string) account.RevokeSelector { return account.RevokeSelector{SessionsOf: id} })},
		"/app/users/{id}/endpoints": readMethods(identityScopes, h.listAccessed),
		"/app/sessions":             readMethods(identityScopes, h.listSessions),
		"/app/sessions/{id}":        session,
	}
}
