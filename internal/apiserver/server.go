// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver owns the account API over HTTP: routes, the order of checks, scopes, limits,
// the error body, paging and the watch.
//
// What comes in: HTTP requests with an API key, below the root of one listener. Whom it hands over
// to: the interfaces of internal/account, which it knows nothing of but their methods. One file per
// resource; docs/api.md says what clients see.
package apiserver

import (
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Version is the only value that the version header may have.
const Version = "2"

// VersionHeader is the name of the header that says which version of the API a client speaks.
const VersionHeader = "Service-Version"

// OperationHeader carries the operation id of each answer; error bodies and log lines have it too.
const OperationHeader = "Operation-Id"

// Limits of the API. Zero values mean the defaults.
type Limits struct {
	Rate              float64       // requests per second and key; 50
	Burst             int           // requests at once and key; 100
	WatchesPerAccount int           // account.DefaultMaxWatches
	BodyBytes         int64         // 1 MiB
	BodyTimeout       time.Duration // for reading a request's body; 30 s
	WriteTimeout      time.Duration // for a watcher to take what is written to it; 10 s
	KeyCheckInterval  time.Duration // how often the keys of open watches are looked up; 500 ms
}

// Options are what New needs. All interfaces, Admits and Mark are required where nothing else is
// said.
type Options struct {
	Endpoints     account.Endpoints
	Events        account.EventLog
	Audit         account.AuditLog
	Operators     account.Operators
	Sessions      account.TunnelSessions
	SessionEnder  account.SessionEnder
	APIKeys       account.APIKeys
	Authtokens    account.Authtokens
	Authenticator account.Authenticator

	Backends       account.Backends
	CloudEndpoints account.CloudEndpoints
	Tunnels        account.LabelledTunnels
	Identities     account.Identities
	Revoker        account.Revoker // ends what is served, too
	// RedactionMark makes what stands for a secret of a policy: "redacted:" and 8 hexadecimal digits,
	// the same for the same account and secret.
	RedactionMark func(accountID, secret string) string
	// CheckPolicy compiles a policy before it is kept; nil refuses every policy.
	CheckPolicy account.PolicyChecker
	// CheckStaticAddress returns CodeInvalid for the address of a static backend to which the server
	// would not connect; nil admits all.
	CheckStaticAddress func(address string) error
	Active             ActiveBackends // nil = not known
	// MatchSelectors makes of an operator's selectors what says whether an endpoint is one of its own:
	// with none of them every one is. CodeInvalid for a selector that does not compile.
	MatchSelectors func(selectors []string) (func(*account.Endpoint) bool, error)

	BaseURL         string   // https://HOST[:PORT], from which URIs in answers are built
	VersionHeaders  []string // further names that the version header may have
	Limits          Limits
	OnAuthenticated func(*http.Request) // called for each request whose key is known; may be nil
	Logger          *slog.Logger        // default slog.Default
	Clock           func() time.Time    // default time.Now; for rate limits, operation ids and how long a page may take
	Heartbeat       time.Duration       // between two BOOKMARK lines of a watch; default 15 s
}

// ActiveBackends says which child of a failover backend serves now, "" when nobody knows.
type ActiveBackends interface {
	Active(accountID, backendID string) string
}

func (o *Options) setDefaults() {
	setDefault(&o.Limits.Rate, 50)
	setDefault(&o.Limits.Burst, 100)
	setDefault(&o.Limits.WatchesPerAccount, account.DefaultMaxWatches)
	setDefault(&o.Limits.BodyBytes, 1<<20)
	setDefault(&o.Limits.BodyTimeout, 30*time.Second)
	setDefault(&o.Limits.WriteTimeout, 10*time.Second)
	setDefault(&o.Limits.KeyCheckInterval, 500*time.Millisecond)
	setDefault(&o.Heartbeat, 15*time.Second)
	setDefault(&o.Logger, slog.Default())
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	o.VersionHeaders = append([]string{VersionHeader}, o.VersionHeaders...)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

type server struct {
	opt     Options
	mux     *http.ServeMux
	unknown *route // answers paths without a route
	rates   rateLimits
	watches watchCounts
	keys    keyWatch

	description func() ([]byte, error) // of the API; made once
}

// New returns the handler of the API. It may be called by many goroutines. Watches end when the
// context of their request does: cancel the http.Server's BaseContext to end them at shutdown.
func New(opt Options) http.Handler {
	opt.setDefaults()
	s := &server{opt: opt, mux: http.NewServeMux()}
	s.rates = rateLimits{rate: opt.Limits.Rate, burst: opt.Limits.Burst}
	s.watches = watchCounts{most: opt.Limits.WatchesPerAccount}
	s.keys = keyWatch{auth: opt.Authenticator, every: opt.Limits.KeyCheckInterval, log: opt.Logger}
	s.description = sync.OnceValues(s.describe)
	s.unknown = &route{server: s}
	s.mux.Handle("/", s.unknown)
	for pattern, methods := range s.routes() {
		s.mux.Handle(pattern, &route{server: s, pattern: pattern, methods: methods})
	}
	return s
}

// The scopes beside admin that may do what a route does.
var (
	reading     = []account.Scope{account.ScopeRead}
	watching    = []account.Scope{account.ScopeRead, account.ScopeOperator}
	registering = []account.Scope{account.ScopeOperator}
	seeing      = []account.Scope{account.ScopeRead, account.ScopeIdentities}
	revoking    = []account.Scope{account.ScopeIdentities}
	describing  = account.Scopes()
	only        []account.Scope // admin
)

// routes is the one list of what the API offers.
func (s *server) routes() map[string]map[string]method {
	routes := map[string]map[string]method{
		"/openapi.json": {http.MethodGet: {describing, s.getDescription}},
		"/endpoints": {
			http.MethodGet:  {watching, s.listEndpoints},
			http.MethodPost: {only, s.createEndpoint},
		},
		"/endpoints/{id}": {
			http.MethodGet:    {watching, s.getEndpoint},
			http.MethodPatch:  {only, s.updateEndpoint},
			http.MethodDelete: {only, s.deleteEndpoint},
		},
		"/events":       {http.MethodGet: {reading, s.listAudit}},
		"/events/{id}":  {http.MethodGet: {reading, s.getAudit}},
		"/tunnels":      {http.MethodGet: {reading, s.listTunnels}},
		"/tunnels/{id}": {http.MethodGet: {reading, s.getTunnel}},
		"/kubernetes_operators": {
			http.MethodGet:  {watching, s.listOperators},
			http.MethodPost: {registering, s.upsertOperator},
		},
		"/kubernetes_operators/{id}": {
			http.MethodGet:    {watching, s.getOperator},
			http.MethodPatch:  {registering, s.patchOperator},
			http.MethodDelete: {registering, s.deleteOperator},
		},
		"/kubernetes_operators/{id}/bound_endpoints": {http.MethodGet: {watching, s.listBound}},
		"/tunnel_sessions":                           {http.MethodGet: {reading, s.listSessions}},
		"/tunnel_sessions/{id}":                      {http.MethodGet: {reading, s.getSession}},
		"/tunnel_sessions/{id}/stop":                 {http.MethodPost: {only, s.stopSession}},
		"/tunnel_sessions/{id}/restart":              {http.MethodPost: {only, s.restartSession}},
		"/api_keys": {
			http.MethodGet:  {watching, s.listAPIKeys},
			http.MethodPost: {only, s.createAPIKey},
		},
		"/api_keys/{id}": {
			http.MethodGet:    {watching, s.getAPIKey},
			http.MethodPatch:  {only, s.patchAPIKey},
			http.MethodDelete: {only, s.deleteAPIKey},
		},
		"/credentials": {
			http.MethodGet:  {reading, s.listAuthtokens},
			http.MethodPost: {only, s.createAuthtoken},
		},
		"/credentials/{id}": {
			http.MethodGet:    {reading, s.getAuthtoken},
			http.MethodPatch:  {only, s.patchAuthtoken},
			http.MethodDelete: {only, s.deleteAuthtoken},
		},
	}
	s.backendRoutes(routes)
	s.identityRoutes(routes)
	return routes
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The mux would redirect such a path; a client of an API is told that it is wrong.
	if p := r.URL.Path; !strings.HasPrefix(p, "/") || p != "/" && path.Clean(p) != p {
		s.unknown.ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}
