// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
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
	Rate              float64       // requests per second and key; 50
	Burst             int           // requests at once per key; 100
	WatchesPerAccount int           // account.DefaultMaxWatches
	BodyBytes         int64         // 1 MiB
	BodyTimeout       time.Duration // for reading a request's body; 30 s
	WriteTimeout      time.Duration // for a watcher to take what is written to it; 10 s
	KeyCheckInterval  time.Duration // how often the keys of open watches are looked up; 500 ms
}

// Store is what the API reads and writes.
type Store interface {
	account.Endpoints
	account.CloudEndpoints
	account.EventLog
	account.AuditLog
	account.Operators
	account.Backends
	account.TunnelSessions
	account.LabelledTunnels
	account.Identities
	account.APIKeys
	account.Authtokens
	account.Authenticator
}

// Options are what New needs. Fields are required unless their comment names a default.
type Options struct {
	Store        Store
	SessionEnder account.SessionEnder
	Revoker      account.Revoker // ends sessions and their open connections

	// RedactionMark returns the text that is shown in place of a secret of a policy: "redacted:"
	// and 8 hexadecimal digits, the same for the same account and secret.
	RedactionMark func(accountID, secret string) string
	// CheckPolicy compiles a policy before it is stored; nil refuses every policy.
	CheckPolicy account.PolicyChecker
	// CheckStaticAddress returns CodeInvalid for the address of a static backend to which the
	// server would not connect; nil admits all.
	CheckStaticAddress func(address string) error
	// ActiveChild returns the child of a failover backend that serves now, "" when it is not known;
	// nil knows none.
	ActiveChild func(accountID, backendID string) string
	// MatchSelectors compiles an operator's selectors to a function that reports whether an
	// endpoint is the operator's; without selectors every endpoint is. CodeInvalid for a selector
	// that does not compile.
	MatchSelectors func(selectors []string) (func(*account.Endpoint) bool, error)
	// Draining reports whether the server is about to stop. Then writes are refused with
	// CodeUnavailable, but for revocations. nil means never.
	Draining func() bool

	BaseURL         string              // https://HOST[:PORT], from which URIs in answers are built
	VersionHeaders  []string            // further names that the version header may have; may be empty
	Limits          Limits              // zero values mean the defaults
	OnAuthenticated func(*http.Request) // called for each request whose key is known; may be nil
	Logger          *slog.Logger        // default slog.Default
	// Clock is for rate limits, operation IDs and the time of a page of bound endpoints; default
	// time.Now.
	Clock     func() time.Time
	Heartbeat time.Duration // between two BOOKMARK lines of a watch; default 15 s
}

func (o *Options) setDefaults() {
	l := &o.Limits
	l.Rate, l.Burst = cmp.Or(l.Rate, 50), cmp.Or(l.Burst, 100)
	l.WatchesPerAccount = cmp.Or(l.WatchesPerAccount, account.DefaultMaxWatches)
	l.BodyBytes, l.BodyTimeout = cmp.Or(l.BodyBytes, 1<<20), cmp.Or(l.BodyTimeout, 30*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 10*time.Second)
	l.KeyCheckInterval = cmp.Or(l.KeyCheckInterval, 500*time.Millisecond)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Draining == nil {
		o.Draining = func() bool { return false }
	}
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	o.VersionHeaders = append([]string{VersionHeader}, o.VersionHeaders...)
}

type server struct {
	opt      Options
	calls    httpkit.Handler
	mux      *http.ServeMux
	notFound *route // answers paths without a route
	rates    rateLimits
	watches  httpkit.StreamLimit
	keys     keyMonitor

	description func() ([]byte, error) // of the API; made once
}

// New returns the handler of the API. It is safe for concurrent use. Watches end when the context
// of their request does: cancel the http.Server's BaseContext to end them at shutdown.
func New(opt Options) http.Handler {
	opt.setDefaults()
	s := &server{opt: opt, mux: http.NewServeMux()}
	s.calls = httpkit.Handler{Name: "api request", Logger: opt.Logger, Clock: opt.Clock}
	s.rates = rateLimits{rate: opt.Limits.Rate, burst: opt.Limits.Burst}
	s.watches = httpkit.StreamLimit{Max: opt.Limits.WatchesPerAccount}
	s.keys = keyMonitor{store: opt.Store, interval: opt.Limits.KeyCheckInterval, log: opt.Logger}
	s.description = sync.OnceValues(s.describe)
	s.notFound = &route{server: s}
	s.mux.Handle("/", s.notFound)
	for pattern, methods := range s.routes() {
		s.mux.Handle(pattern, &route{server: s, pattern: pattern, methods: methods})
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The mux would redirect such a path; the API refuses it.
	if p := r.URL.Path; !strings.HasPrefix(p, "/") || p != "/" && path.Clean(p) != p {
		s.notFound.ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}
