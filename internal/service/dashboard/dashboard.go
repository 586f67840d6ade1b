// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
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
	backendStore
}

type backendStore interface {
	account.Backends
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

// server checks who asks for a page, hands the call to the handler of its route, and shows the page
// that the handler fills.
type server struct {
	opt       Options
	calls     httpkit.Handler
	mux       *http.ServeMux
	pages     webpage.Templates
	static    *webpage.Static
	origins   *http.CrossOriginProtection
	countries countryNames
	signIns   *signIns
}

// New returns the handler of everything below Path. It is safe for concurrent use. Streams of
// live updates end when the context of their request does: cancel the http.Server's BaseContext to
// end them at shutdown.
func New(opt Options) http.Handler {
	opt.setDefaults()
	s := &server{opt: opt, mux: http.NewServeMux(), origins: http.NewCrossOriginProtection(),
		countries: parseCountries()}
	s.signIns = &signIns{store: opt.Store, trustedProxies: opt.TrustedProxies,
		attempts: clientlimit.NewRate(rate.Every(opt.Limits.SignInInterval), opt.Limits.SignInBurst)}
	s.calls = httpkit.Handler{Name: "dashboard request", Logger: opt.Logger, Meter: opt.Meter}
	s.static = webpage.NewStatic(Path+"static/", files)
	s.pages = webpage.ParseTemplates(files, s.templateFuncs())
	s.mux.Handle("/", &route{server: s})
	s.mux.Handle("GET "+Path+"static/{file}", s.static)
	for pattern, rt := range s.handlers().routes() {
		rt.server, rt.pattern = s, pattern
		s.mux.Handle(pattern, &rt)
	}
	return webpage.Compressed(s)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetHeaders(w.Header())
	s.mux.ServeHTTP(w, r)
}
