// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// route serves one path. Without get and post there is no such page.
type route struct {
	server      *server
	pattern     string
	get         func(*call) error
	post        func(*call) error
	public      bool            // needs no sign-in
	scopes      []account.Scope // beside admin, for get
	writeScopes []account.Scope // beside admin, for post
	maxForm     int64           // bytes; 0 means maxForm
}

// Scopes that suffice beside admin.
var (
	readScopes     = []account.Scope{account.ScopeRead}
	identityScopes = []account.Scope{account.ScopeRead, account.ScopeIdentities}
	revokeScopes   = []account.Scope{account.ScopeIdentities}
)

// handlers are what serves the pages, by subject. Each names the template of its page, which is
// templates/PAGE.html.
type handlers struct {
	signIns     *signIns
	live        *liveUpdates
	overview    *overviewHandlers
	endpoints   *endpointHandlers
	operators   *operatorHandlers
	backends    *backendHandlers
	agents      *agentHandlers
	clusters    *clusterHandlers
	events      *eventHandlers
	identities  *identityHandlers
	traffic     *trafficHandlers
	paths       *mapHandlers
	credentials []*credentialKind

	policies       *policies
	endpointEditor *editor
	backendEditors backendEditors
}

func (s *server) handlers() *handlers {
	o, store := &s.opt, s.opt.Store
	backends := &backendReader{store: store, edge: o.Backends, replicas: o.Replicas}
	operators := &operatorReader{store: store, matchSelectors: o.MatchSelectors}
	p := &policies{endpoints: store, redactor: o.Redactor, checker: o.CheckPolicy, sealer: o.Sealer}
	credentials := []*credentialKind{apiKeys(store), authtokens(store)}
	return &handlers{
		signIns: s.signIns,
		live: &liveUpdates{signIns: s.signIns, audit: store, endpoints: store,
			streams: httpkit.StreamLimit{Max: o.Limits.StreamsPerAccount}, limits: o.Limits},
		overview: &overviewHandlers{store: store, matchSelectors: o.MatchSelectors, backends: backends,
			credentials: credentials, traffic: o.Traffic, certificates: o.Certificates, replicas: o.Replicas},
		endpoints: &endpointHandlers{store: store, backends: backends, operators: operators, redactor: o.Redactor},
		operators: &operatorHandlers{reader: operators, endpoints: store},
		backends:  &backendHandlers{reader: backends, tunnels: store, endpoints: store},
		agents:    &agentHandlers{sessions: store, tunnels: store, endpoints: store, ender: o.SessionEnder},
		clusters:  &clusterHandlers{clusters: store, audit: store, baseURL: o.BaseURL},
		events:    &eventHandlers{audit: store},
		identities: &identityHandlers{identities: store, audit: store, revoker: o.Revoker, traffic: o.Traffic,
			countries: s.countries},
		traffic: &trafficHandlers{traffic: o.Traffic, endpoints: store, backends: backends},
		paths: &mapHandlers{endpoints: store, sessions: store, backends: backends, operators: operators,
			traffic: o.Traffic, replicas: o.Replicas},
		credentials: credentials,

		policies:       p,
		endpointEditor: (&endpointForm{store: store, policies: p, backends: backends}).editor(store),
		backendEditors: newBackendEditors(backends, p, store),
	}
}

// routes returns all routes by their pattern.
func (h *handlers) routes() map[string]route {
	const people, sessions = identitiesPath, sessionsPath + "{id}"
	change := h.backendEditors.handler
	routes := map[string]route{
		Path + "sign-in":  {public: true, get: h.signIns.showForm, post: h.signIns.signIn},
		Path + "sign-out": {public: true, post: h.signIns.signOut},
		Path + "live":     {get: h.live.serve, scopes: identityScopes},

		Path + "{$}":     {get: h.overview.show, scopes: identityScopes},
		Path + "traffic": {get: h.traffic.ofAccount, scopes: readScopes},
		Path + "map":     {get: h.paths.showMap, scopes: readScopes},
		Path + "events":  {get: h.events.list, scopes: readScopes},

		Path + "endpoints":              {get: h.endpoints.list, scopes: readScopes},
		Path + "endpoints/new":          editing(h.endpointEditor.open, h.endpointEditor.submit),
		Path + "endpoints/check":        editing(nil, h.policies.checkTyped),
		Path + "endpoints/{id}":         {get: h.endpoints.show, scopes: readScopes},
		Path + "endpoints/{id}/traffic": {get: h.traffic.ofEndpoint, scopes: readScopes},
		Path + "endpoints/{id}/path":    {get: h.paths.showPath, scopes: readScopes},
		Path + "endpoints/{id}/edit":    editing(h.endpointEditor.open, h.endpointEditor.submit),
		Path + "endpoints/{id}/delete":  {get: h.endpoints.confirmDelete, post: h.endpoints.delete},

		Path + "backends":              {get: h.backends.list, scopes: readScopes},
		Path + "backends/{id}":         {get: h.backends.show, scopes: readScopes},
		Path + "backends/{id}/traffic": {get: h.traffic.ofBackend, scopes: readScopes},
		Path + "backends/{id}/edit":    editing(change((*editor).open), change((*editor).submit)),
		Path + "backends/{id}/delete":  {get: h.backends.confirmDelete, post: h.backends.delete},

		Path + "kubernetes-operators":      {get: h.operators.list, scopes: readScopes},
		Path + "kubernetes-operators/{id}": {get: h.operators.show, scopes: readScopes},

		Path + "agents":              {get: h.agents.list, scopes: readScopes},
		Path + "agents/{id}":         {get: h.agents.show, scopes: readScopes},
		Path + "agents/{id}/stop":    {get: h.agents.confirmStop, post: h.agents.stop},
		Path + "agents/{id}/restart": {get: h.agents.confirmRestart, post: h.agents.restart},

		Path + "clusters":             {get: h.clusters.list, scopes: readScopes},
		Path + "clusters/{id}":        {get: h.clusters.show, scopes: readScopes},
		Path + "clusters/{id}/delete": {get: h.clusters.confirmDelete, post: h.clusters.delete},

		people:                    {get: h.identities.list, scopes: identityScopes},
		people + "/{id}":          {get: h.identities.show, scopes: identityScopes},
		people + "/{id}/endpoint": {get: h.identities.showAccess, scopes: identityScopes},
		people + "/{id}/sign-out": revoking(h.identities.confirmSignOut, h.identities.signOut),
		people + "/{id}/revoke":   revoking(h.identities.confirmRevoke, h.identities.revoke),
		sessions:                  {get: h.identities.showSession, scopes: identityScopes},
		sessions + "/revoke":      revoking(h.identities.confirmRevokeSession, h.identities.revokeSession),
	}
	for kind, e := range h.backendEditors {
		routes[Path+"backends/new/"+string(kind)] = editing(e.open, e.submit)
	}
	for _, k := range h.credentials {
		routes[Path+k.path] = route{get: k.showList, scopes: readScopes}
		routes[Path+k.path+"/new"] = route{get: k.showEmptyForm, post: k.submitForm}
		routes[Path+k.path+"/{id}/delete"] = route{get: k.confirmDelete, post: k.delete}
	}
	return routes
}

// editing returns the route of a form in which a traffic policy has room.
func editing(get, post func(*call) error) route {
	return route{get: get, post: post, maxForm: maxEditForm}
}

// revoking returns the route of what ends people's sessions.
func revoking(get, post func(*call) error) route {
	return route{get: get, post: post, scopes: revokeScopes, writeScopes: revokeScopes}
}
