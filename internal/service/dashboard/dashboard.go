// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/webpage"
)

// Path is where the dashboard is mounted. The handler gets the whole path.
const Path = "/ui/"

// Store is what the dashboard reads and writes.
type Store interface {
	httpkit.Store
	account.CloudEndpoints
	account.DashboardSessions
	// ActiveChildren returns the children of failovers that serve with each replica, by failover and
	// replica.
	ActiveChildren(ctx context.Context, accountID string, ids []string) (map[string]map[string]string, error)
}

// Options are what New needs. Fields are required unless their comment names a default.
type Options struct {
	httpkit.SharedOptions
	Store Store

	GeoIP   bool   // the server has a database of the locations of addresses
	Version string // the server's version
	// Replicas are the servers of the database; nil where one server is alone.
	Replicas Replicas
	// Traffic is what the pages of traffic show; nil = nothing is recorded.
	Traffic Traffic
	// Certificates are those on which endpoints depend; nil = there are none.
	Certificates Certificates
	// CheckPolicy compiles a policy before it is stored; nil refuses every policy.
	CheckPolicy account.PolicyChecker
	Sealer      Sealer // nil = secrets that were typed have to be typed again after a mistake
	// TrustedProxies are those whose X-Forwarded-For names the client by which attempts to sign in
	// are counted.
	TrustedProxies []netip.Prefix
	Limits         Limits
}

// Replicas are the servers of the database.
type Replicas interface {
	// Replicas returns all of them.
	Replicas() []Replica
}

// Sealer encrypts texts that only Unseal with the same owner reads: secrets that were typed are kept
// so in the form until they are saved. *seal.Key implements it.
type Sealer interface {
	Seal(text, owner string) []byte
	Unseal(sealed []byte, owner string) (string, error)
}

// Limits of the dashboard. Zero values mean the defaults.
type Limits struct {
	SignInInterval      time.Duration // one attempt per client in this time; 6 s
	SignInBurst         int           // attempts at once per client; 10
	StreamsPerAccount   int           // live updates per account; 100
	SignInCheckInterval time.Duration // between two checks of a stream's sign-in; 2 s
	Heartbeat           time.Duration // between two heartbeats of a stream; 15 s
	StreamLifetime      time.Duration // after which the browser has to open another stream; 1 h
	WriteTimeout        time.Duration // for a browser to accept what a stream writes; 10 s
	BodyTimeout         time.Duration // for a form to arrive; 30 s
}

func (o *Options) setDefaults() {
	o.SharedOptions.SetDefaults()
	l := &o.Limits
	l.SignInInterval, l.SignInBurst = cmp.Or(l.SignInInterval, 6*time.Second), cmp.Or(l.SignInBurst, 10)
	l.StreamsPerAccount = cmp.Or(l.StreamsPerAccount, 100)
	l.SignInCheckInterval = cmp.Or(l.SignInCheckInterval, 2*time.Second)
	l.Heartbeat, l.StreamLifetime = cmp.Or(l.Heartbeat, 15*time.Second), cmp.Or(l.StreamLifetime, time.Hour)
	l.WriteTimeout, l.BodyTimeout = cmp.Or(l.WriteTimeout, 10*time.Second), cmp.Or(l.BodyTimeout, 30*time.Second)
}

type server struct {
	opt       Options
	calls     httpkit.Handler
	mux       *http.ServeMux
	pages     webpage.Templates
	static    *webpage.Static
	origins   *http.CrossOriginProtection
	countries map[string]string // names by code
	attempts  *clientlimit.Rate // attempts to sign in
	streams   httpkit.StreamLimit
	summaries summaryCache
}

// New returns the handler of everything below Path. It is safe for concurrent use. Streams of
// live updates end when the context of their request does: cancel the http.Server's BaseContext to
// end them at shutdown.
func New(opt Options) http.Handler {
	opt.setDefaults()
	s := &server{opt: opt, mux: http.NewServeMux(), origins: http.NewCrossOriginProtection(),
		countries: parseCountries()}
	s.attempts = clientlimit.NewRate(rate.Every(opt.Limits.SignInInterval), opt.Limits.SignInBurst)
	s.calls = httpkit.Handler{Name: "dashboard request", Logger: opt.Logger, Clock: opt.Clock, Meter: opt.Meter}
	s.streams = httpkit.StreamLimit{Max: opt.Limits.StreamsPerAccount}
	s.static = webpage.NewStatic(Path+"static/", files)
	s.pages = webpage.ParseTemplates(files, s.templateFuncs())
	s.mux.Handle("/", &route{server: s})
	s.mux.Handle("GET "+Path+"static/{file}", s.static)
	for pattern, rt := range s.routes() {
		rt.server, rt.pattern = s, pattern
		s.mux.Handle(pattern, &rt)
	}
	return webpage.Compressed(s)
}

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

// routes returns all routes by their pattern.
func (s *server) routes() map[string]route {
	users, session := identitiesPath, sessionsPath+"{id}"
	routes := map[string]route{
		Path + "sign-in":  {public: true, get: s.signInPage, post: s.signIn},
		Path + "sign-out": {public: true, post: s.signOut},
		Path + "live":     {get: s.liveUpdates, scopes: identityScopes},

		Path + "{$}":                       {get: s.overview, scopes: identityScopes},
		Path + "endpoints":                 {get: s.endpoints, scopes: readScopes},
		Path + "endpoints/{id}":            {get: s.endpoint, scopes: readScopes},
		Path + "endpoints/{id}/traffic":    {get: s.endpointTraffic, scopes: readScopes},
		Path + "endpoints/{id}/path":       {get: s.path, scopes: readScopes},
		Path + "backends/{id}/traffic":     {get: s.backendTraffic, scopes: readScopes},
		Path + "traffic":                   {get: s.accountTraffic, scopes: readScopes},
		Path + "map":                       {get: s.pathMap, scopes: readScopes},
		Path + "kubernetes-operators":      {get: s.operators, scopes: readScopes},
		Path + "kubernetes-operators/{id}": {get: s.operator, scopes: readScopes},
		Path + "backends":                  {get: s.backends, scopes: readScopes},
		Path + "backends/{id}":             {get: s.backend, scopes: readScopes},
		Path + "agents":                    {get: s.agents, scopes: readScopes},
		Path + "agents/{id}":               {get: s.agent, scopes: readScopes},
		Path + "agents/{id}/stop":          {get: s.confirmStop, post: s.stopAgent},
		Path + "agents/{id}/restart":       {get: s.confirmRestart, post: s.restartAgent},
		Path + "events":                    {get: s.events, scopes: readScopes},
		Path + "clusters":                  {get: s.clusters, scopes: readScopes},
		Path + "clusters/{id}":             {get: s.cluster, scopes: readScopes},
		Path + "clusters/{id}/delete":      {get: s.confirmDeleteCluster, post: s.deleteCluster},
		users:                              {get: s.users, scopes: identityScopes},
		users + "/{id}":                    {get: s.user, scopes: identityScopes},
		users + "/{id}/endpoint":           {get: s.access, scopes: identityScopes},
		users + "/{id}/sign-out": {get: s.confirmSignOutUser, post: s.signOutUser, scopes: revokeScopes,
			writeScopes: revokeScopes},
		users + "/{id}/revoke": {get: s.confirmRevokeUser, post: s.revokeUser, scopes: revokeScopes,
			writeScopes: revokeScopes},
		session: {get: s.session, scopes: identityScopes},
		session + "/revoke": {get: s.confirmRevokeSession, post: s.revokeSession, scopes: revokeScopes,
			writeScopes: revokeScopes},
	}
	for _, kind := range s.credentialKinds() {
		maps.Copy(routes, kind.routes())
	}
	maps.Copy(routes, s.editorRoutes())
	return routes
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetHeaders(w.Header())
	s.mux.ServeHTTP(w, r)
}
