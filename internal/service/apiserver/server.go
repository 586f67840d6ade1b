// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// Version is the only value that the version header may have.
const Version = "2"

// VersionHeader is the header of requests that names the version of the API that the client speaks.
const VersionHeader = "Service-Version"

// OperationHeader is the header of answers with the ID of the operation, which error bodies and log
// lines have as well.
const OperationHeader = "Operation-Id"

// Limits of the API. Zero values mean the defaults.
type Limits struct {
	Rate              float64       // requests per second and key; 100
	Burst             int           // requests at once per key; 200
	WatchesPerAccount int           // account.DefaultMaxWatches
	BodyBytes         int64         // 1 MiB
	BodyTimeout       time.Duration // for reading a request's body; 30 s
	WriteTimeout      time.Duration // for a watcher to take what is written to it; 10 s
	KeyCheckInterval  time.Duration // how often the keys of open watches are looked up; 500 ms
}

// Store is what the API reads and writes.
type Store interface {
	httpkit.Store
	account.CloudEndpoints
	account.ClusterPinner
	account.ClusterKeys
}

// Options are what New needs. Fields are required unless their comment names a default.
type Options struct {
	httpkit.SharedOptions
	Store Store

	// CheckPolicy compiles a policy before it is stored; nil refuses every policy.
	CheckPolicy    account.PolicyChecker
	VersionHeaders []string      // further names that the version header may have; may be empty
	Limits         Limits        // zero values mean the defaults
	Heartbeat      time.Duration // between two BOOKMARK lines of a watch; default 15 s
}

func (o *Options) setDefaults() {
	o.SharedOptions.SetDefaults()
	l := &o.Limits
	l.Rate, l.Burst = cmp.Or(l.Rate, 100), cmp.Or(l.Burst, 200)
	l.WatchesPerAccount = cmp.Or(l.WatchesPerAccount, account.DefaultMaxWatches)
	l.BodyBytes, l.BodyTimeout = cmp.Or(l.BodyBytes, 1<<20), cmp.Or(l.BodyTimeout, 30*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 10*time.Second)
	l.KeyCheckInterval = cmp.Or(l.KeyCheckInterval, 500*time.Millisecond)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.VersionHeaders = append([]string{VersionHeader}, o.VersionHeaders...)
}

type server struct {
	opt      Options
	calls    httpkit.Handler
	mux      *http.ServeMux
	notFound *route                       // answers paths without a route
	rates    *clientlimit.Buckets[string] // rates count the requests of each API key.
	watches  *watches
	uris     uris
}

// Handler serves the API. It is safe for concurrent use.
type Handler struct{ *server }

// EndRevokedWatches ends the open watches whose keys were deleted or have expired. When it returns
// without an error, they write nothing more but what they are writing now.
func (h Handler) EndRevokedWatches(ctx context.Context) error { return h.watches.keys.check(ctx) }

// New returns the handler of the API. Watches end when the context of their request does: cancel
// the http.Server's BaseContext to end them at shutdown.
func New(opt Options) Handler {
	opt.setDefaults()
	s := &server{opt: opt, mux: http.NewServeMux(), uris: uris(opt.BaseURL)}
	s.calls = httpkit.Handler{Name: "api request", Logger: opt.Logger, Meter: opt.Meter}
	s.rates = clientlimit.NewBuckets[string](rate.Limit(opt.Limits.Rate), opt.Limits.Burst)
	s.watches = &watches{streams: httpkit.StreamLimit{Max: opt.Limits.WatchesPerAccount},
		keys:    keyMonitor{store: opt.Store, interval: opt.Limits.KeyCheckInterval, log: opt.Logger},
		timeout: opt.Limits.WriteTimeout, heartbeat: opt.Heartbeat}
	s.notFound = &route{server: s}
	s.mux.Handle("/", s.notFound)
	for pattern, methods := range s.routes() {
		s.mux.Handle(pattern, &route{server: s, pattern: pattern, methods: methods})
	}
	return Handler{s}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The mux would redirect such a path; the API refuses it.
	if p := r.URL.Path; !strings.HasPrefix(p, "/") || p != "/" && path.Clean(p) != p {
		s.notFound.ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}
