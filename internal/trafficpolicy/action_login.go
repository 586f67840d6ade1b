// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// LoginKind is the type of a login action.
type LoginKind string

// The kinds.
const (
	LoginOAuth LoginKind = "oauth"
	LoginOIDC  LoginKind = "openid-connect"
	LoginSAML  LoginKind = "saml"
)

// LoginConfig is the config of a login action, checked as far as that takes no request. It holds
// secrets: never log it.
type LoginConfig struct {
	Kind LoginKind
	// AuthID distinguishes the login actions of one host in cookies and paths: 1-64 of a-z, 0-9,
	// "-" and "_".
	AuthID             string
	MaxSession         time.Duration
	IdleSession        time.Duration // IdleSession ends a session that is not used for as long; 0 = none.
	AllowCORSPreflight bool          // AllowCORSPreflight passes OPTIONS requests of CORS without a login.
	// UpstreamGroups are the groups that are sent to the upstream: names, or beginnings before a final
	// "*"; nil = all.
	UpstreamGroups []string
	// Digest is the same for equal configs. It is not for people, who could guess secrets with it.
	Digest string

	// Fields of oauth and openid-connect.
	Provider string // Provider is that of oauth: github, gitlab, google or microsoft.
	// IssuerURL is the issuer of openid-connect, or the URL of an oauth provider that is not at its
	// usual one.
	IssuerURL      string
	ClientID       string
	ClientSecret   string
	Scopes         []string
	AuthzURLParams map[string]string
	// RequireAuthTime requires the provider's auth_time for a login after a revocation. nil = if
	// the provider was asked for it.
	RequireAuthTime *bool

	// Fields of saml. One of the first two is set.
	IdPMetadata       string //nolint:revive // SAML's own spelling
	IdPMetadataURL    string //nolint:revive // as above
	ForceAuthn        bool
	AllowIdPInitiated bool //nolint:revive // as above
	AuthorizedGroups  []string
	NameIDFormat      string // NameIDFormat is a URN.
}

// ForwardsGroup reports whether the group is sent to the upstream.
func (l *LoginConfig) ForwardsGroup(group string) bool {
	return l.UpstreamGroups == nil || slices.ContainsFunc(l.UpstreamGroups, func(of string) bool {
		prefix, many := strings.CutSuffix(of, "*")
		return of == group || many && strings.HasPrefix(group, prefix)
	})
}

// LoginRequest is a request at a login action.
type LoginRequest struct {
	Config   *LoginConfig
	Endpoint *account.Endpoint
	Conn     *Conn
	Pages    PageWriter
}

// LoginHandler implements login actions. It answers a request itself (a redirect, a page, a
// reserved path), or calls next once, with a copy of the request whose context ends with the
// session, without the action's cookies, and with a writer that drops everything after that end. The
// person is nil for a preflight request.
type LoginHandler interface {
	ServeLogin(w http.ResponseWriter, r *http.Request, l LoginRequest, next AdmitFunc)
}

// AdmitFunc passes a request to the rules after a login action, which may read who the person is.
type AdmitFunc = func(w http.ResponseWriter, r *http.Request, person *account.LoginIdentity)

// LoginPath returns the prefix of an action's reserved paths: /_fairlead/{auth_id}/.
func LoginPath(authID string) string { return account.ReservedPath + authID + "/" }

// ClientRequestURI returns the path and query of a request as the client sent them, before the
// policy changed the URL.
func ClientRequestURI(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// loginAction is a login action of any kind: it reads the config, and Options.LoginHandler does the
// rest.
type loginAction struct {
	config    LoginConfig
	namespace string // namespace is that of the action's results below "actions".
}

// loginNamespaces are the names below "actions" of the results of logins.
var loginNamespaces = []string{"oauth", "oidc", "saml"}

func newLogin(kind LoginKind, family string) func() action {
	return func() action { return &loginAction{config: LoginConfig{Kind: kind}, namespace: family} }
}

func (a *loginAction) provision(c *config) {
	before := len(c.c.problems)
	c.c.checkLogin(c)
	c.c.loginNamespace = a.namespace
	a.config.AuthID = a.authID(c)
	a.config.MaxSession = c.duration("max_session_duration", account.DefaultSessionDuration, false)
	a.config.IdleSession = c.duration("idle_session_timeout", 0, true)
	if idle := c.duration("idle_session_duration", 0, true); idle > 0 { // another spelling
		if c.has("idle_session_timeout") {
			c.c.problem(c.keys["idle_session_duration"], "idle_session_duration",
				"idle_session_duration is idle_session_timeout in another spelling: give one of them")
		}
		a.config.IdleSession = idle
	}
	if c.has("upstream_groups") {
		a.config.UpstreamGroups = []string{} // an empty list passes no group on
	}
	for _, item := range c.items("upstream_groups", maxLoginGroups) {
		a.config.UpstreamGroups = append(a.config.UpstreamGroups, item.Value)
	}
	switch a.config.Kind {
	case LoginSAML:
		a.config.provisionSAML(c)
	default:
		a.config.provisionOAuth(c)
	}
	text, err := json.Marshal(a.config)
	if err != nil {
		panic(fmt.Sprintf("trafficpolicy: encoding a login action: %v", err)) // texts, lists and numbers always encode
	}
	sum := sha256.Sum256(text)
	a.config.Digest = hex.EncodeToString(sum[:])
	if check := c.c.policy.options.ValidateLogin; check != nil && len(c.c.problems) == before {
		for _, f := range account.FieldsOf(check(&a.config)) {
			c.c.problem(c.values[f.Field], "", "%s: %s", f.Field, f.Rule)
		}
	}
}

// checkLogin checks that a login is possible: one in a document, and only where a browser keeps the
// cookies.
func (c *compiler) checkLogin(a *config) {
	o := c.policy.options
	switch {
	case o.Binding != "" && o.Binding != account.BindingPublic:
		c.problem(a.node, "", "%s is for endpoints that browsers reach: those with the public binding, not with %s",
			a.kind.name, o.Binding)
	case o.Binding != "" && o.Scheme != "https":
		c.problem(a.node, "", "%s needs an endpoint with TLS: browsers keep its cookies only for https:// URLs",
			a.kind.name)
	}
	if c.loginNode != nil && c.loginNode.Line != a.node.Line {
		c.problem(a.node, "", "a policy has one login action; the first is on line %d", c.loginNode.Line)
	} else if c.loginNode != nil {
		c.problem(a.node, "", "a policy has one login action")
	}
	c.loginNode = a.node
}

const maxAuthID = 64

func (a *loginAction) authID(c *config) string {
	id := c.str("auth_id", a.namespace)
	if id == "" || len(id) > maxAuthID || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		c.c.problem(c.values["auth_id"], id, "auth_id has between 1 and %d characters: a-z, 0-9, - and _", maxAuthID)
	}
	return id
}

// hints explain why keys of other products are missing here.
func (*loginAction) hints() map[string]string {
	return map[string]string{
		"auth_cookie_domain": "a login is for one host, and its cookies are the host's own",
		"cookie_domain":      "a login is for one host, and its cookies are the host's own",
		"cookie_prefix":      "the names of cookies begin with __Host-fl- and the auth_id",
		"userinfo_refresh_interval": "what is known of a person is what the provider said at the login; " +
			"max_session_duration bounds its age",
		"options_passthrough":        "its name is allow_cors_preflight",
		"maximum_session_duration":   "its name is max_session_duration",
		"inactivity_timeout":         "its name is idle_session_timeout",
		"maximum_duration":           "its name is max_session_duration",
		"oauth_scopes":               "its name is scopes",
		"email_addresses":            "compare actions.oauth.identity.email in a rule after this one, and deny",
		"email_domains":              "compare actions.oauth.identity.email in a rule after this one, and deny",
		"allow_emails":               "compare actions.oauth.identity.email in a rule after this one, and deny",
		"allow_domains":              "compare actions.oauth.identity.email in a rule after this one, and deny",
		"request_signing_encryption": "requests to the identity provider are not signed",
	}
}

// serve passes requests with a session on. Without a LoginHandler it denies every request.
func (a *loginAction) serve(x *exchange) {
	logins := x.policy.options.LoginHandler
	if logins == nil || x.conn.Endpoint == nil {
		x.fail()
		return
	}
	l := LoginRequest{Config: &a.config, Endpoint: x.conn.Endpoint, Conn: x.conn, Pages: x.forwarder}
	logins.ServeLogin(x.w, x.r, l, func(w http.ResponseWriter, r *http.Request, person *account.LoginIdentity) {
		x.w, x.r, x.cloned = w, r, false
		clear(x.cache)
		a.setResults(x, person)
		x.next()
	})
}

// setResults sets the results that later rules may read.
func (a *loginAction) setResults(x *exchange, id *account.LoginIdentity) {
	x.setResult(a.namespace+".session_timed_out", false)
	if id == nil {
		x.setResult(a.namespace+".error.code", string(account.CodeLoginNeeded)) // a preflight request
		return
	}
	of := a.namespace + ".identity."
	for name, text := range map[string]string{"id": id.ID, "email": id.Email, "name": id.Name,
		"provider_user_id": id.ProviderUserID} {
		if text != "" {
			x.setResult(of+name, text)
		}
	}
	groups, attributes := id.Groups, id.Attributes
	if groups == nil {
		groups = []string{}
	}
	if attributes == nil {
		attributes = map[string][]string{}
	}
	x.setResult(of+"groups", groups)
	x.setResult(of+"attributes", attributes)
}

// isReservedPath reports whether the request is for one of the action's reserved paths. They are
// served even where the expressions of its rule do not match.
func (a *loginAction) isReservedPath(r *http.Request) bool {
	return strings.HasPrefix(ClientRequestURI(r), LoginPath(a.config.AuthID))
}

// reservedPathAction returns the rule's login action when the request is for one of its reserved
// paths.
func (r *rule) reservedPathAction(x *exchange) *loginAction {
	if x.r == nil || x.status != 0 {
		return nil
	}
	for i := range r.actions {
		if a, ok := r.actions[i].action.(*loginAction); ok && a.isReservedPath(x.r) {
			return a
		}
	}
	return nil
}

// LoginCookiePrefix begins the names of the cookies of login actions. They are between the browser
// and the edge: upstreams neither see nor set them.
const LoginCookiePrefix = "__Host-fl-"

// IsLoginCookie reports whether a NAME=VALUE, with or without attributes, is or may become a cookie
// of a login action: browsers compare the prefix in any case, and send a cookie without a name as
// its value alone.
func IsLoginCookie(pair string) bool {
	pair = strings.TrimLeft(pair, "= \t")
	return len(pair) >= len(LoginCookiePrefix) && strings.EqualFold(pair[:len(LoginCookiePrefix)], LoginCookiePrefix)
}

// DropLoginCookies removes the cookies of login actions from h and leaves all others as they came.
func DropLoginCookies(h http.Header) {
	lines, there := h["Cookie"]
	if !there {
		return
	}
	kept := make([]string, 0, len(lines))
	for _, line := range lines {
		if !strings.Contains(strings.ToLower(line), strings.ToLower(LoginCookiePrefix)) {
			kept = append(kept, line)
			continue
		}
		var pairs []string
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.TrimSpace(pair); pair != "" && !IsLoginCookie(pair) {
				pairs = append(pairs, pair)
			}
		}
		if len(pairs) > 0 {
			kept = append(kept, strings.Join(pairs, "; "))
		}
	}
	if len(kept) == 0 {
		delete(h, "Cookie")
		return
	}
	h["Cookie"] = kept
}
