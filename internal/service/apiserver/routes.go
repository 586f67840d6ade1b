// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// methods are what a route offers, by HTTP method.
type methods = map[string]*method

// method is how a route serves one HTTP method.
type method struct {
	resource.Operation
	handle handler
}

// routes returns every route of the API, by pattern.
func (s *server) routes() map[string]methods {
	routes, handlers := map[string]methods{}, s.handlers()
	for _, r := range resource.All() {
		for _, op := range r.Operations {
			if routes[op.Pattern] == nil {
				routes[op.Pattern] = methods{}
			}
			routes[op.Pattern][op.Method] = &method{op, handlers[op.ID]}
		}
	}
	return routes
}

// handlers returns the handlers by the IDs of the operations that they serve.
func (s *server) handlers() map[string]handler {
	o, store := &s.opt, s.opt.Store
	endpoints := &endpointHandlers{store, s.uris, o.Redactor, o.CheckPolicy, o.Meter, s.watches}
	events := &eventHandlers{store, s.uris, s.watches}
	sessions, tunnels := &sessionHandlers{store, o.SessionEnder, s.uris}, &tunnelHandlers{store, s.uris}
	operators := &operatorHandlers{store: store, endpoints: store, uris: s.uris, matchSelectors: o.MatchSelectors}
	keys, tokens := &apiKeyHandlers{store, s.uris}, &authtokenHandlers{store, s.uris}
	clusters, people := &clusterHandlers{store, s.uris}, &identityHandlers{store, o.Revoker, s.uris}
	all := map[string]handler{
		"getDescription": s.descriptionHandler(),
		"listEvents":     events.list,
		"getEvent":       events.kind().getHandler(inAccount(store.AuditEvent)),

		"listEndpoints":  endpoints.list,
		"createEndpoint": endpoints.create,
		"getEndpoint":    endpoints.kind().getHandler(endpoints.read),
		"updateEndpoint": endpoints.update,
		"deleteEndpoint": endpoints.remove,

		"listApplicationUsers": people.listUsers,
		"getApplicationUser":   people.users().getHandler(people.readUser),
		"revokeApplicationUser": people.revokeHandler(account.PrefixUser,
			func(id string) account.RevokeSelector { return account.RevokeSelector{UserID: id} }),
		"endApplicationUserSessions": people.revokeHandler(account.PrefixUser,
			func(id string) account.RevokeSelector { return account.RevokeSelector{SessionsOf: id} }),
		"listAccessedEndpoints":   people.listAccessed,
		"listApplicationSessions": people.listSessions,
		"getApplicationSession":   people.sessions().getHandler(people.readSession),
		"revokeApplicationSession": people.revokeHandler(account.PrefixAppSession,
			func(id string) account.RevokeSelector { return account.RevokeSelector{SessionID: id} }),

		"listTunnels":          tunnels.kind().listHandler(tunnels.list),
		"getTunnel":            tunnels.kind().getHandler(inAccount(store.LabelledTunnel)),
		"listTunnelSessions":   sessions.kind().listHandler(pageInAccount(sessions.store.ListTunnelSessions)),
		"getTunnelSession":     sessions.kind().getHandler(inAccount(store.TunnelSession)),
		"stopTunnelSession":    sessions.stop,
		"restartTunnelSession": sessions.restart,

		"listOperators":       operators.kind().listHandler(operators.list),
		"registerOperator":    operators.upsert,
		"getOperator":         operators.kind().getHandler(operators.read),
		"updateOperator":      operators.update,
		"deleteOperator":      operators.remove,
		"listBoundEndpoints":  operators.listBound,
		"handOverClusterKeys": clusters.handOverKeys,
	}
	maps.Copy(all, keys.kind().handlers("APIKey", keys.list, store.DeleteAPIKey))
	maps.Copy(all, tokens.kind().handlers("Credential", pageInAccount(store.ListAuthtokens), store.DeleteAuthtoken))
	maps.Copy(all, clusters.kind().handlers("Cluster", pageInAccount(store.ListClusters), store.DeleteCluster))
	for kind, name := range map[account.BackendKind]string{account.BackendFailover: "Failover",
		account.BackendWeighted: "Weighted", account.BackendTunnelGroup: "TunnelGroup",
		account.BackendStatic: "Static", account.BackendHTTPResponse: "HttpResponse"} {
		h := &backendHandlers{kind, store, o.Backends, tunnels, s.uris}
		maps.Copy(all, h.backends().handlers(name+"Backend", h.list, h.remove))
	}
	return all
}
