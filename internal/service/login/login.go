// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/hsts"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Options configure a Handler.
type Options struct {
	Store     account.Logins
	Revoker   account.Revoker // ends sessions at a logout
	Live      *live.Registry
	Key       *seal.Key                           // seals what browsers carry
	Locations *geo.Databases                      // where browsers are; nil = not looked up
	Providers map[trafficpolicy.LoginKind]Factory // a kind without one is refused
	Allow     []backend.Allowed                   // private networks that identity providers may be in
	Logger    *slog.Logger
	Clock     func() time.Time // nil = time.Now

	ClockChecker ClockChecker
	Failures     FailureRecorder // nil = none

	// Rate and Burst limit each step of a login for each client; 0 = 10 a second, and 100.
	Rate  rate.Limit
	Burst int
}

// ClockChecker knows the clocks of the other servers.
type ClockChecker interface {
	// CheckClock returns an error while this machine's clock is too far from theirs, and logins are
	// refused.
	CheckClock() error
}

// Limits of a login.
const (
	flowLifetime    = 10 * time.Minute
	maxRestarts     = 3                // restarts of a login, because of revocations during it
	maxFlows        = 5                // logins under way per browser and action
	providerTimeout = 20 * time.Second // limit for all requests to a provider in one step
	maxPost         = 512 << 10        // bytes of a post to acs
	maxLogoutPost   = 16 << 10         // bytes of a post to logout
)

// ClockSkew is the largest accepted difference between a provider's clock and this server's.
const ClockSkew = time.Minute

// Handler implements login actions. It is safe for concurrent use.
type Handler struct {
	opt       Options
	log       *slog.Logger
	now       func() time.Time
	providers *providerCache
	limits    map[string]*clientlimit.Rate // by the name of the step
}

var _ trafficpolicy.LoginHandler = (*Handler)(nil)

// New returns a Handler.
func New(o Options) *Handler {
	h := &Handler{opt: o, log: o.Logger, now: o.Clock, providers: newProviderCache(o.Providers, NewClient(o.Allow)),
		limits: map[string]*clientlimit.Rate{}}
	if h.now == nil {
		h.now = time.Now
	}
	for _, step := range []string{PathLogin, PathCallback, PathACS, PathLogout, PathMetadata} {
		h.limits[step] = clientlimit.NewRate(cmp.Or(o.Rate, 10), cmp.Or(o.Burst, 100))
	}
	return h
}

// Close closes idle connections to identity providers.
func (h *Handler) Close() { h.providers.client.CloseIdleConnections() }

// CertificateEnd returns the name of the config's provider, and when its last certificate or its
// metadata expires. The time is zero for a provider without certificates, and while its metadata has
// not been fetched from the URL.
func (h *Handler) CertificateEnd(accountID string, c *trafficpolicy.LoginConfig) (name string, end time.Time) {
	p, err := h.providers.find(accountID, c)
	if certified, ok := p.(CertifiedProvider); ok && err == nil {
		return certified.CertificateEnd()
	}
	return "", time.Time{}
}

// request is one request to an endpoint with a login action.
type request struct {
	*Handler
	trafficpolicy.LoginRequest
	w        http.ResponseWriter
	r        *http.Request
	action   Action
	provider Provider
	step     string // current step of the login; "" = stepSession
	returnTo string // the path at which the login began; "" = unknown
	// person is whom the provider has confirmed, for reports of failures.
	person account.LoginIdentity
}

// ServeLogin implements trafficpolicy.LoginHandler.
func (h *Handler) ServeLogin(
	w http.ResponseWriter, r *http.Request, lr trafficpolicy.LoginRequest,
	next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult),
) {
	q := &request{Handler: h, LoginRequest: lr, w: w, r: r,
		action: Action{AccountID: lr.Endpoint.AccountID, EndpointURL: lr.Endpoint.URL, AuthID: lr.Config.AuthID}}
	var err error
	if q.provider, err = h.providers.get(q.action.AccountID, lr.Config); err != nil {
		q.writeError(err)
		return
	}
	path, _, _ := strings.Cut(trafficpolicy.ClientRequestURI(r), "?")
	if name, own := strings.CutPrefix(path, q.action.path("")); own {
		q.serveReserved(name)
		return
	}
	q.authenticate(next)
}

// serveReserved serves one of the action's reserved paths.
func (q *request) serveReserved(name string) {
	_, callback := q.provider.(CallbackProvider)
	_, post := q.provider.(PostProvider)
	serve := map[string]map[string]func() error{
		PathLogin:  {http.MethodGet: q.handleLogin},
		PathLogout: {http.MethodGet: q.showLogoutForm, http.MethodPost: q.handleLogout},
	}
	if callback {
		serve[PathCallback] = map[string]func() error{http.MethodGet: q.handleCallback}
	}
	if post {
		serve[PathACS] = map[string]func() error{http.MethodPost: q.handleACS}
		serve[PathFinish] = map[string]func() error{http.MethodGet: q.handleFinish}
		serve[PathMetadata] = map[string]func() error{http.MethodGet: q.serveMetadata}
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
		if err := f(); err != nil {
			q.writeError(err)
		}
	}
}

// setPrivacyHeaders keeps responses of a login out of caches, its URLs out of Referer, and later
// requests off plain http.
func (q *request) setPrivacyHeaders() {
	h := q.w.Header()
	if q.Conn.TLS {
		hsts.Set(h, q.r.Host)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
}

func (q *request) writePage(code account.Code, msg string) {
	q.setPrivacyHeaders()
	q.Page(q.w, q.r, code.Status(), code, msg)
}

func (q *request) redirect(to string) {
	q.setPrivacyHeaders()
	h := q.w.Header()
	h.Set("Location", to)
	h.Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusSeeOther)
}

// checkRateLimit reports whether the client may take the step now, and answers the request when
// not.
func (q *request) checkRateLimit(step string) bool {
	if q.limits[step].Allow(q.Conn.ClientIP, q.now()) {
		return true
	}
	q.writeRateLimited()
	return false
}

func (q *request) writeRateLimited() {
	q.w.Header().Set("Retry-After", "1")
	q.writePage(account.CodeRateLimited,
		"There are too many logins from your network at the moment. Try again in a moment.")
}

// writeError answers a request whose login failed. Only the message of an *account.Error is shown
// to the person; the cause is logged.
func (q *request) writeError(err error) {
	code, msg := account.CodeOf(err), userMessage(err)
	switch code {
	case account.CodeLoginFailed, account.CodeProviderFailed, account.CodeLoginAgain, account.CodeUnavailable:
	default:
		code, msg = account.CodeUnavailable, ""
	}
	if msg == "" || code == account.CodeUnavailable {
		msg = "The service cannot look up at the moment who is logged in to this endpoint. Try again in a moment."
	} else if !strings.Contains(msg, q.action.EndpointURL) { // a provider's message has no URL
		msg += " Open " + q.action.EndpointURL + " to begin again."
	}
	level := slog.LevelInfo
	if code == account.CodeUnavailable {
		level = slog.LevelError
	}
	if q.r.Context().Err() == nil {
		q.log.Log(q.r.Context(), level, "login failed", "endpoint", q.Endpoint.ID, "url", q.Endpoint.URL, "auth_id",
			q.Config.AuthID, "err", logText(err))
	}
	q.reportFailure(code, msg, err)
	if code == account.CodeUnavailable {
		q.w.Header().Set("Retry-After", "2")
	}
	if q.returnTo != "/" && q.returnTo != "" { // the owner of the endpoint is not told
		msg = strings.ReplaceAll(msg, q.action.EndpointURL, q.action.EndpointURL+q.returnTo)
	}
	q.writePage(code, msg)
}

// providerContext limits how long one step may wait for the provider.
func (q *request) providerContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(q.r.Context(), providerTimeout)
}
