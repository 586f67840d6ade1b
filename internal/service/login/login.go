// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Options configure a Handler.
type Options struct {
	Store     account.Logins
	Revoker   account.Revoker // Revoker ends sessions at a logout.
	Live      *live.Registry
	Key       *seal.Key                           // Key seals the cookies and states of flows.
	Locations *geo.Databases                      // Locations are those of browsers; nil = not looked up.
	Providers map[trafficpolicy.LoginKind]Factory // Providers has no factory of the kinds that are refused.
	Allow     []backend.Allowed                   // Allow has the private networks of identity providers.
	Logger    *slog.Logger

	ClockChecker ClockChecker
	Failures     FailureRecorder // Failures may be nil.

	// Rate and Burst limit each step of a login for each client; 0 = 10 a second, and 100.
	Rate  rate.Limit
	Burst int
}

// Limits of a login.
const (
	flowLifetime    = 10 * time.Minute
	maxRestarts     = 3                // restarts of a login, because of revocations during it
	maxFlows        = 5                // logins under way per browser and action
	providerTimeout = 20 * time.Second // limit for all requests to a provider in one step
	maxPost         = 512 << 10        // bytes of a post to acs: a response in base64 and percent signs
	maxLogoutPost   = 16 << 10         // bytes of a post to logout
)

// ClockSkew is the largest accepted difference between a provider's clock and this server's.
const ClockSkew = time.Minute

// Handler implements login actions. It is safe for concurrent use.
type Handler struct {
	log       *slog.Logger
	failures  FailureRecorder
	providers *providerCache
	sessions  *sessions
	logins    *logins
	logouts   *logouts
}

var _ trafficpolicy.LoginHandler = (*Handler)(nil)

// New returns a Handler.
func New(o Options) *Handler {
	s, a := &sessions{store: o.Store, live: o.Live, locations: o.Locations}, newAdmission(&o)
	return &Handler{log: o.Logger, failures: o.Failures, providers: newProviderCache(o.Providers, NewClient(o.Allow)),
		sessions: s, logouts: &logouts{revoker: o.Revoker, sessions: s, admission: a},
		logins: &logins{store: o.Store, live: o.Live, sessions: s, flows: flows{o.Key}, admission: a}}
}

// Close closes idle connections to identity providers.
func (h *Handler) Close() { h.providers.client.CloseIdleConnections() }

// CertificateEnd returns the name of the config's provider, and when its last certificate or its
// metadata expires. The time is zero for a provider without certificates, and while its metadata
// has not been fetched from the URL.
func (h *Handler) CertificateEnd(accountID string, c *trafficpolicy.LoginConfig) (name string, end time.Time) {
	p, err := h.providers.get(accountID, c, false)
	if certified, ok := p.(CertifiedProvider); ok && err == nil {
		return certified.CertificateEnd()
	}
	return "", time.Time{}
}

// ServeLogin implements trafficpolicy.LoginHandler.
func (h *Handler) ServeLogin(
	w http.ResponseWriter, r *http.Request, lr trafficpolicy.LoginRequest, next trafficpolicy.AdmitFunc,
) {
	q := &request{LoginRequest: lr, w: w, r: r, log: h.log, failures: h.failures,
		action: Action{AccountID: lr.Endpoint.AccountID, EndpointURL: lr.Endpoint.URL, EntityURL: lr.Endpoint.URL,
			AuthID: lr.Config.AuthID}}
	if lr.Conn.Port != 0 {
		seen := lr.Endpoint.ParsedURL()
		seen.Port = lr.Conn.Port
		q.action.EndpointURL = seen.String()
	}
	var err error
	if q.provider, err = h.providers.get(q.action.AccountID, lr.Config, true); err != nil {
		q.writeError(err)
		return
	}
	path, _, _ := strings.Cut(trafficpolicy.ClientRequestURI(r), "?")
	if name, own := strings.CutPrefix(path, q.action.path("")); own {
		h.serveReserved(q, name)
		return
	}
	if !h.sessions.serve(q, next) {
		h.logins.unauthenticated(q, next)
	}
}

// serveReserved serves one of the action's reserved paths.
func (h *Handler) serveReserved(q *request, name string) {
	serve := map[string]map[string]func(*request) error{
		PathLogin:  {http.MethodGet: h.logins.handleLogin},
		PathLogout: {http.MethodGet: h.logouts.showForm, http.MethodPost: h.logouts.handle},
	}
	if _, ok := q.provider.(CallbackProvider); ok {
		serve[PathCallback] = map[string]func(*request) error{http.MethodGet: h.logins.handleCallback}
	}
	if _, ok := q.provider.(PostProvider); ok {
		serve[PathACS] = map[string]func(*request) error{http.MethodPost: h.logins.handleACS}
		serve[PathFinish] = map[string]func(*request) error{http.MethodGet: h.logins.handleFinish}
		serve[PathMetadata] = map[string]func(*request) error{http.MethodGet: h.logins.serveMetadata}
	}
	q.setPrivacyHeaders()
	q.step = name
	methods, known := serve[name]
	switch f := methods[q.r.Method]; {
	case !known:
		q.writePage(account.CodeNoRoute, "There is nothing here. Open "+q.action.EndpointURL+" instead.")
	case f == nil:
		q.writePage(account.CodeMethod, "This address of the login takes another method.")
	default:
		if err := f(q); err != nil {
			q.writeError(err)
		}
	}
}

// ClockChecker compares clocks of servers.
type ClockChecker interface {
	// CheckClock returns an error while this machine's clock is too far from those of the other
	// servers, and logins are refused.
	CheckClock() error
}

// admission decides whether a step of a login may be done now. It is safe for concurrent use.
type admission struct {
	limits map[string]*clientlimit.Rate // limits are those of each step, by its name.
	clock  ClockChecker
}

func newAdmission(o *Options) *admission {
	a := &admission{limits: map[string]*clientlimit.Rate{}, clock: o.ClockChecker}
	for _, step := range []string{PathLogin, PathCallback, PathACS, PathLogout, PathMetadata} {
		a.limits[step] = clientlimit.NewRate(cmp.Or(o.Rate, 10), cmp.Or(o.Burst, 100))
	}
	return a
}

// checkRateLimit reports whether the client may do the step now, and answers the request when
// not.
func (a *admission) checkRateLimit(q *request, step string) bool {
	if a.limits[step].Allow(q.Conn.ClientIP, time.Now()) {
		return true
	}
	q.writeRateLimited()
	return false
}

// checkClock reports whether a login may go on by this server's clock, and answers the request when
// not. Whether a revocation came before or after the begin of a login is judged by the store's
// clock. All else is judged by this server's: the times of ID tokens and assertions, of which a
// clock that is behind admits expired ones; the age of a flow, which another server may have begun;
// and when the session ends, which then holds with all servers. Sessions that exist were judged
// before, so they are served.
//
// A step checks the clock before it uses anything up, so that the browser may repeat it later, or
// at another server.
func (a *admission) checkClock(q *request) bool {
	err := a.clock.CheckClock()
	if err == nil {
		return true
	}
	q.log.Warn("login refused", "endpoint", q.Endpoint.ID, "url", q.Endpoint.URL, "auth_id", q.Config.AuthID,
		"err", err)
	const shown = "You cannot log in through this server at the moment, because its clock is wrong. " +
		"Try again in a moment."
	q.reportFailure(account.CodeUnavailable, shown, err)
	q.w.Header().Set("Retry-After", "2")
	q.writePage(account.CodeUnavailable, shown)
	return false
}
