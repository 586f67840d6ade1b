// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/backend"
	"github.com/fairlead-dev/fairlead/internal/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/hsts"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/seal"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Options are what logins need.
type Options struct {
	Store     account.Logins
	Revoker   account.Revoker // of logouts
	Live      *live.Registry
	Key       *seal.Key                                           // seals what browsers carry
	Device    func(r *http.Request, ip netip.Addr) account.Device // nil: the browser's own words and its address
	Providers map[trafficpolicy.LoginKind]Factory                 // a kind without one is refused
	Allow     []backend.Allowed                                   // private networks in which identity providers may be
	Logger    *slog.Logger
	Clock     func() time.Time // nil = time.Now

	// of logins that one client begins, of callbacks, of posts and of logouts: each for itself; 0 = 10
	// a second
	Rate  rate.Limit
	Burst int // 0 = 100
}

// Limits of a login.
const (
	flowLife        = 10 * time.Minute
	maxAgain        = 3                // times that one login is begun anew, because of revocations while it was under way
	maxFlows        = 5                // logins that one browser can have begun at an action
	providerTimeout = 20 * time.Second // of all that one step asks a provider
	maxPost         = 512 << 10        // bytes of a post to acs
	maxLogoutPost   = 16 << 10         // bytes of a post to logout
)

// ClockSkew is how far the clock of a provider and this server's may differ.
const ClockSkew = time.Minute

// Handler carries login actions out. It is safe for concurrent use.
type Handler struct {
	opt       Options
	log       *slog.Logger
	now       func() time.Time
	providers *providers
	limits    map[string]*clientlimit.Rate // by the name of the step
}

var _ trafficpolicy.LoginHandler = (*Handler)(nil)

// New returns a Handler.
func New(o Options) *Handler {
	l := &Handler{opt: o, log: o.Logger, now: o.Clock, providers: newProviders(o.Providers, NewClient(o.Allow)),
		limits: map[string]*clientlimit.Rate{}}
	if l.now == nil {
		l.now = time.Now
	}
	if l.opt.Device == nil {
		l.opt.Device = plainDevice
	}
	for _, step := range []string{PathLogin, PathCallback, PathACS, PathLogout, PathMetadata} {
		l.limits[step] = clientlimit.NewRate(cmp.Or(o.Rate, 10), cmp.Or(o.Burst, 100))
	}
	return l
}

// Close closes idle connections to identity providers.
func (l *Handler) Close() { l.providers.client.CloseIdleConnections() }

func plainDevice(r *http.Request, ip netip.Addr) account.Device {
	d := account.Device{UserAgent: account.UserAgent{Raw: r.UserAgent()}}
	if ip.IsValid() {
		d.IPAddress = ip.String()
	}
	return d
}

// visit is one request at a login action.
type visit struct {
	*Handler
	trafficpolicy.LoginRequest
	w        http.ResponseWriter
	r        *http.Request
	place    Action
	provider Provider
}

// ServeLogin implements trafficpolicy.LoginHandler.
func (l *Handler) ServeLogin(
	w http.ResponseWriter, r *http.Request, q trafficpolicy.LoginRequest,
	next func(http.ResponseWriter, *http.Request, trafficpolicy.LoginResult),
) {
	v := &visit{Handler: l, LoginRequest: q, w: w, r: r,
		place: Action{AccountID: q.Endpoint.AccountID, EndpointURL: q.Endpoint.URL, AuthID: q.Config.AuthID}}
	var err error
	if v.provider, err = l.providers.of(v.place.AccountID, q.Config); err != nil {
		v.fail(err)
		return
	}
	path, _, _ := strings.Cut(trafficpolicy.ClientRequestURI(r), "?")
	if name, own := strings.CutPrefix(path, v.place.path("")); own {
		v.reserved(name)
		return
	}
	v.admit(next)
}

// reserved serves one of the action's own paths.
func (v *visit) reserved(name string) {
	_, callback := v.provider.(CallbackProvider)
	_, post := v.provider.(PostProvider)
	serve := map[string]map[string]func(){
		PathLogin:  {http.MethodGet: v.login},
		PathLogout: {http.MethodGet: v.askLogout, http.MethodPost: v.logout},
	}
	if callback {
		serve[PathCallback] = map[string]func(){http.MethodGet: v.callback}
	}
	if post {
		serve[PathACS] = map[string]func(){http.MethodPost: v.consume}
		serve[PathFinish] = map[string]func(){http.MethodGet: v.finish}
		serve[PathMetadata] = map[string]func(){http.MethodGet: v.metadata}
	}
	v.noStore()
	methods, known := serve[name]
	switch f := methods[v.r.Method]; {
	case !known:
		v.page(account.CodeNoRoute, "There is nothing here. Open "+v.place.EndpointURL+" instead.")
	case f == nil:
		v.page(account.CodeMethod, "This address of the login takes another method.")
	default:
		f()
	}
}

// noStore keeps what is about a login out of caches, its address out of what browsers tell others,
// and later requests off plain http.
func (v *visit) noStore() {
	h := v.w.Header()
	if v.Conn.TLS {
		hsts.Set(h, v.r.Host)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
}

func (v *visit) page(code account.Code, msg string) {
	v.noStore()
	v.Page(v.w, v.r, code.Status(), code, msg)
}

func (v *visit) redirect(to string) {
	v.noStore()
	h := v.w.Header()
	h.Set("Location", to)
	h.Set("Content-Length", "0")
	v.w.WriteHeader(http.StatusSeeOther)
}

// admitted says whether the client may take the step now; it has been answered when not.
func (v *visit) admitted(step string) bool {
	if v.limits[step].Allow(v.Conn.ClientIP, v.now()) {
		return true
	}
	v.tooMany()
	return false
}

func (v *visit) tooMany() {
	v.w.Header().Set("Retry-After", "1")
	v.page(account.CodeRateLimited, "There are too many logins from your network at the moment. Try again in a moment.")
}

// fail answers a request whose login went wrong. Only the sentence of an *account.Error is for the
// person; the cause is logged.
func (v *visit) fail(err error) {
	code, msg := account.CodeOf(err), sentence(err)
	switch code {
	case account.CodeLoginFailed, account.CodeProviderFailed, account.CodeLoginAgain, account.CodeUnavailable:
	default:
		code, msg = account.CodeUnavailable, ""
	}
	if msg == "" || code == account.CodeUnavailable {
		msg = "The service cannot look up at the moment who is logged in to this endpoint. Try again in a moment."
	} else if !strings.Contains(msg, v.place.EndpointURL) { // providers do not say where it goes on
		msg += " Open " + v.place.EndpointURL + " to begin again."
	}
	level := slog.LevelInfo
	if code == account.CodeUnavailable {
		level = slog.LevelError
	}
	if v.r.Context().Err() == nil {
		v.log.Log(v.r.Context(), level, "a login has failed", "endpoint", v.Endpoint.ID, "url", v.Endpoint.URL, "auth_id",
			v.Config.AuthID, "err", causeText(err))
	}
	v.page(code, msg)
}

// asking bounds what one step asks a provider.
func (v *visit) asking() (context.Context, context.CancelFunc) {
	return context.WithTimeout(v.r.Context(), providerTimeout)
}
